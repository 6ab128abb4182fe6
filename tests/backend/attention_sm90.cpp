// cuda.attention.sm90 in the emulation of Hopper (device/hopper_emulated.h): right against double
// precision, and the same bits with every timing of copies and products, and with any number of
// blocks.
#if !CREST_HAVE_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backend/cuda/attention_sm90_forward.h"
#include "backend/cuda/attention_sm90_grad_start.h"

namespace crest::cuda::sm90 {
namespace {

using hopper::emulated::Timing;

struct Case {
  int batch, tokens, heads, kv_heads, head_dim;
  bool causal = true;
  int window = 0;
  bool documents = false;
  double p = 0;
  int ranks = 1, place = 0;  // of attention_rows: the rank has two chunks of the sequence
};

// dkv: apart from the queries, of several ranks.
struct Results {
  std::vector<bfloat16> o, dq, dkv;
  std::vector<float> lse;
};

class Problem {
 public:
  explicit Problem(const Case& c)
      : c(c),
        apart(c.ranks > 1),
        queries(c.tokens / c.ranks),
        q_width((apart ? c.heads : c.heads + 2 * c.kv_heads) * c.head_dim),
        kv_width(apart ? 2 * c.kv_heads * c.head_dim : q_width),
        columns(c.heads * c.head_dim) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    q.resize(size_t(c.batch) * queries * q_width), d_o.resize(size_t(c.batch) * queries * columns);
    if (apart) kv.resize(size_t(c.batch) * c.tokens * kv_width);
    for (auto* list : {&q, &kv, &d_o})
      for (auto& x : *list) x = to_bfloat16(normal(random));
    s.batch = c.batch, s.tokens = c.tokens, s.heads = c.heads, s.kv_heads = c.kv_heads;
    s.queries = queries, s.chunk_queries = apart ? queries / 2 : queries, s.key_head = apart ? 0 : c.heads;
    if (apart) {
      s.shift[0] = c.place * s.chunk_queries;
      s.shift[1] = (2 * c.ranks - 1 - c.place) * s.chunk_queries - s.chunk_queries;
    }
    for (int b = 0; b < c.batch; ++b) {
      std::vector<int32_t> all;
      for (int t = 0, left = 0, at = 0; t < c.tokens; ++t, --left) {
        if (!left) left = 1 + int(random() % 300), at = 0;
        all.push_back(at++);
      }
      for (int t = 0; t < queries; ++t) positions.push_back(all[size_t(s.token(t))]);
    }
    s.causal = c.causal, s.window = c.window, s.scale = 1 / std::sqrt(float(c.head_dim));
    if (c.documents) s.positions = positions.data();
    scalars.seed = 77, scalars.sample_base = 3;
    if (c.p > 0) s.dropout = {&scalars, 5, uint32_t(std::ceil(c.p * 0x1p24)), float(1 / (1 - c.p))};
    compute_reference();
  }

  template <int D, bool First, bool Dropout>
  Results run_tiles(int blocks) const {
    Results r = {std::vector<bfloat16>(d_o.size(), bfloat16{0x7fc0}), std::vector<bfloat16>(q.size(), bfloat16{0x7fc0}),
                 std::vector<bfloat16>(kv.size(), bfloat16{0x7fc0}), std::vector<float>(lse.size(), NAN)};
    using Forward = ForwardTile<bfloat16, D, First, Dropout>;
    uint32_t counter = 77;
    start_forward<Forward>(ForwardPlan<Forward>(s), nullptr, q.data(), keys().data(), r.o.data(), r.lse.data(),
                           &counter, blocks, {});
    using Grad = GradTile<bfloat16, D, First, Dropout>;
    GradPlan<Grad> plan(s, 2, 1);
    std::vector<float> workspace(size_t(plan.workspace()) / 4 + 64, NAN);
    auto aligned = (reinterpret_cast<uintptr_t>(workspace.data()) + 255) & ~uintptr_t(255);
    const GradTensors x = {
        d_o.data(), q.data(), keys().data(), r.o.data(), r.lse.data(), r.dq.data(), apart ? r.dkv.data() : r.dq.data()};
    start_grad<Grad>(plan, nullptr, x, reinterpret_cast<void*>(aligned), blocks, {});
    return r;
  }
  Results run(int blocks) const {
    auto with = [&](auto d, auto first, auto dropout) { return run_tiles<d(), first(), dropout()>(blocks); };
    auto with_dim = [&](auto d) {
      if (s.has_first() && c.p > 0) return with(d, std::true_type(), std::true_type());
      if (s.has_first()) return with(d, std::true_type(), std::false_type());
      if (c.p > 0) return with(d, std::false_type(), std::true_type());
      return with(d, std::false_type(), std::false_type());
    };
    return c.head_dim == 64 ? with_dim(std::integral_constant<int, 64>())
                            : with_dim(std::integral_constant<int, 128>());
  }

  void compare(const Results& r) const {
    double largest = 0, difference = 0, norm = 0;
    for (size_t i = 0; i < lse.size(); ++i) largest = std::max(largest, std::abs(double(r.lse[i]) - lse[i]));
    EXPECT_LT(largest, 1e-3);
    auto add = [&](double x, double wanted) { difference += (x - wanted) * (x - wanted), norm += wanted * wanted; };
    for (size_t i = 0; i < o.size(); ++i) add(to_float(r.o[i]), o[i]);
    EXPECT_LT(std::sqrt(difference / norm), 6e-3) << "o";
    const int key = s.key_head * c.head_dim, value = key + c.kv_heads * c.head_dim;
    struct Part {
      const std::vector<bfloat16>& found;
      const std::vector<double>& wanted;
      int width, begin, end;
    };
    for (const Part& part :
         {Part{r.dq, dq, q_width, 0, columns}, Part{apart ? r.dkv : r.dq, key_sums(), kv_width, key, value},
          Part{apart ? r.dkv : r.dq, key_sums(), kv_width, value, kv_width}}) {
      difference = 0, norm = 1e-6;  // of a single token, dQ and dK are 0 but for rounding
      for (size_t i = 0; i < part.wanted.size(); ++i)
        if (int column = int(i % size_t(part.width)); column >= part.begin && column < part.end)
          add(to_float(part.found[i]), part.wanted[i]);
      EXPECT_LT(std::sqrt(difference / norm), 1e-2) << "columns " << part.begin;
    }
  }

 private:
  const std::vector<bfloat16>& keys() const { return apart ? kv : q; }
  const std::vector<double>& key_sums() const { return apart ? dkv : dq; }
  double kept(int b, int head, int query, int key) const {
    if (c.p <= 0) return 1;
    uint64_t element = (uint64_t(head) * uint64_t(c.tokens) + uint64_t(query)) * uint64_t(c.tokens) + uint64_t(key);
    uint32_t bits = random_bits(scalars.seed, dropout_stream(uint64_t(scalars.sample_base + b), 5), element);
    return bits >> 8 >= s.dropout.threshold ? double(s.dropout.keep_scale) : 0.0;
  }

  void compute_reference() {
    const int D = c.head_dim, T = c.tokens;
    o.assign(d_o.size(), 0), dq.assign(q.size(), 0), dkv.assign(kv.size(), 0);
    lse.assign(size_t(c.batch) * c.heads * queries, 0);
    std::vector<double> p(static_cast<size_t>(T));
    const std::vector<bfloat16>& kv = keys();
    std::vector<double>& dkv = apart ? this->dkv : dq;
    for (int b = 0; b < c.batch; ++b)
      for (int head = 0; head < c.heads; ++head)
        for (int t = 0; t < queries; ++t) {
          const size_t query = (size_t(b) * queries + t) * q_width + size_t(head) * D;
          auto key_at = [&](int token, int h) {
            return (size_t(b) * T + token) * kv_width + size_t(s.key_head + h) * D;
          };
          int kv_head = head / s.group(), first = first_key(s, b, t), end = c.causal ? s.token(t) + 1 : T;
          auto dot = [&](const bfloat16* x, const bfloat16* y) {
            double sum = 0;
            for (int e = 0; e < D; ++e) sum += double(to_float(x[e])) * to_float(y[e]);
            return sum;
          };
          double largest = -INFINITY, sum = 0, delta = 0;
          for (int k = first; k < end; ++k)
            largest = std::max(largest, p[k] = s.scale * dot(&q[query], &kv[key_at(k, kv_head)]));
          for (int k = first; k < end; ++k) sum += p[k] = std::exp(p[k] - largest);
          lse[(size_t(b) * c.heads + head) * queries + t] = largest + std::log(sum);
          size_t out = (size_t(b) * queries + t) * columns + size_t(head) * D;
          for (int k = first; k < end; ++k) {
            p[k] /= sum;
            for (int e = 0; e < D; ++e)
              o[out + e] += p[k] * kept(b, head, s.token(t), k) * to_float(kv[key_at(k, c.kv_heads + kv_head) + e]);
          }
          for (int e = 0; e < D; ++e) delta += o[out + e] * to_float(d_o[out + e]);
          for (int k = first; k < end; ++k) {
            size_t key = key_at(k, kv_head), value = key_at(k, c.kv_heads + kv_head);
            double keep = kept(b, head, s.token(t), k);
            double ds = p[k] * (keep * dot(&d_o[out], &kv[value]) - delta) * s.scale;
            for (int e = 0; e < D; ++e) {
              dq[query + e] += ds * to_float(kv[key + e]);
              dkv[key + e] += ds * to_float(q[query + e]);
              dkv[value + e] += p[k] * keep * to_float(d_o[out + e]);
            }
          }
        }
  }

  Case c;
  bool apart;
  int queries, q_width, kv_width, columns;
  std::vector<bfloat16> q, kv, d_o;  // without kv, q is qkv
  std::vector<double> o, lse, dq, dkv;
  std::vector<int32_t> positions;
  Scalars scalars = {};
  Sizes s = {};
};

bool same(const Results& a, const Results& b) {
  auto equal = [](auto& x, auto& y) { return std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0; };
  return equal(a.o, b.o) && equal(a.lse, b.lse) && equal(a.dq, b.dq) && equal(a.dkv, b.dkv);
}

class Sm90Attention : public testing::TestWithParam<Case> {};

TEST_P(Sm90Attention, IsRightAndAlwaysTheSame) {
  Problem problem(GetParam());
  hopper::emulated::set_timing(Timing::early, 1);
  Results first = problem.run(1);
  problem.compare(first);
  for (uint64_t seed : {1, 2}) {
    hopper::emulated::set_timing(Timing::late, seed);
    EXPECT_TRUE(same(first, problem.run(2 + int(seed)))) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Sm90Attention,
    testing::Values(Case{1, 1, 1, 1, 64}, Case{1, 63, 1, 1, 64}, Case{3, 129, 1, 1, 64}, Case{1, 300, 3, 3, 64},
                    Case{1, 200, 4, 2, 64}, Case{1, 400, 1, 1, 64}, Case{2, 130, 1, 1, 64, false},
                    Case{1, 300, 2, 2, 64, true, 100}, Case{1, 500, 2, 2, 64, true, 0, true}, Case{1, 300, 2, 1, 128},
                    Case{1, 190, 1, 1, 128, false}, Case{1, 300, 2, 2, 128, true, 77, true},
                    Case{1, 260, 2, 2, 64, true, 0, false, 0.2}, Case{1, 259, 2, 2, 64, true, 0, true, 0.2},
                    Case{1, 140, 2, 1, 128, true, 0, false, 0.2},
                    // windows of one key, of less and more than a tile, longer than the sequence
                    Case{3, 1, 1, 1, 64, true, 7}, Case{1, 63, 1, 1, 64, true, 1}, Case{1, 65, 2, 1, 64, true, 7},
                    Case{3, 129, 1, 1, 64, true, 64}, Case{1, 129, 1, 1, 64, true, 200},
                    Case{1, 400, 1, 1, 64, true, 7}, Case{1, 65, 1, 1, 128, true, 1}, Case{1, 129, 1, 1, 128, true, 64},
                    Case{1, 500, 1, 1, 64, true, 130, true}, Case{1, 260, 2, 2, 64, true, 50, false, 0.2},
                    // heads taking over the slots of others, with items of few queries
                    Case{3, 260, 1, 1, 64, true, 0, true}, Case{3, 200, 1, 1, 64, true, 90, true},
                    Case{3, 130, 2, 1, 128, true, 0, true}, Case{1, 300, 1, 1, 64, false, 0, true},
                    // two chunks of a sequence
                    Case{1, 512, 2, 1, 64, true, 0, false, 0, 2, 0}, Case{1, 1024, 1, 1, 64, true, 0, false, 0, 2, 0},
                    Case{1, 768, 1, 1, 128, true, 0, false, 0, 3, 1}, Case{1, 512, 1, 1, 64, true, 100, true, 0, 2, 1},
                    Case{1, 512, 2, 2, 128, true, 90, false, 0.2, 4, 2},
                    Case{1, 1024, 1, 1, 64, true, 30, false, 0, 4, 0}));

}  // namespace
}  // namespace crest::cuda::sm90
#endif
