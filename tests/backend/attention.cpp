// attention and attention_grad against the formula in double precision with the T x T matrix in
// memory: on float vectors, on matrix units, and emulated on machines without them.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/attention.h"
#include "backend/cpu/reference/index.h"
#include "core/random.h"
#include "core/scalars.h"
#include "device.h"
#include "fast_call.h"
#include "host/isa.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

struct Case {
  int64_t batch, tokens;
  int heads, kv_heads, head_dim;
  bool causal;
  double p;
  DType dtype;
  int document = 0;  // tokens; 0: the row is one
  int window = 0;    // 0: none
  // Keys of a document before token t.
  int64_t position(int64_t t) const { return document ? t % document : t; }
  int64_t first_key(int64_t t) const {
    return std::max<int64_t>(causal ? t - position(t) : 0, window ? t - window + 1 : 0);
  }
};

void PrintTo(const Case& c, std::ostream* os) {
  *os << "B" << c.batch << " T" << c.tokens << " H" << c.heads << "/" << c.kv_heads << " D" << c.head_dim << " causal "
      << c.causal << " p " << c.p << " " << name(c.dtype) << " documents of " << c.document << " window " << c.window;
}

struct Reference {
  std::vector<double> o, lse, dqkv;
};

Reference reference(const Case& c, const std::vector<double>& qkv, const std::vector<double>& d_o, double scale,
                    const Scalars& scalars, uint32_t rng_id) {
  int64_t T = c.tokens, D = c.head_dim, W = (c.heads + 2 * c.kv_heads) * D, O = c.heads * D;
  Reference r{std::vector<double>(size_t(c.batch * T * O)), std::vector<double>(size_t(c.batch * c.heads * T)),
              std::vector<double>(qkv.size())};
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      int64_t g = h / (c.heads / c.kv_heads);
      auto q = [&](int64_t t, int64_t d) { return size_t((b * T + t) * W + h * D + d); };
      auto k = [&](int64_t t, int64_t d) { return size_t((b * T + t) * W + (c.heads + g) * D + d); };
      auto v = [&](int64_t t, int64_t d) { return size_t((b * T + t) * W + (c.heads + c.kv_heads + g) * D + d); };
      auto o = [&](int64_t t, int64_t d) { return size_t((b * T + t) * O + h * D + d); };
      for (int64_t i = 0; i < T; ++i) {
        int64_t n = c.causal ? i + 1 : T;
        std::vector<double> s(static_cast<size_t>(n)), keep(static_cast<size_t>(n), 1.0), dp(static_cast<size_t>(n));
        double m = -INFINITY, l = 0, d_sum = 0;
        int64_t first = c.first_key(i);
        for (int64_t j = first; j < n; ++j) {
          for (int64_t d = 0; d < D; ++d) s[size_t(j)] += scale * qkv[q(i, d)] * qkv[k(j, d)];
          m = std::max(m, s[size_t(j)]);
          if (c.p > 0) {
            uint64_t stream = dropout_stream(uint64_t(scalars.sample_base + b), rng_id);
            bool kept = uniform(random_bits(scalars.seed, stream, uint64_t((h * T + i) * T + j))) >= c.p;
            keep[size_t(j)] = kept ? 1 / (1 - c.p) : 0;
          }
        }
        for (int64_t j = first; j < n; ++j) l += std::exp(s[size_t(j)] - m);
        r.lse[size_t((b * c.heads + h) * T + i)] = m + std::log(l);
        for (int64_t j = first; j < n; ++j) {
          double p = s[size_t(j)] = std::exp(s[size_t(j)] - m) / l;
          for (int64_t d = 0; d < D; ++d) {
            r.o[o(i, d)] += p * keep[size_t(j)] * qkv[v(j, d)];
            dp[size_t(j)] += keep[size_t(j)] * d_o[o(i, d)] * qkv[v(j, d)];
            r.dqkv[v(j, d)] += p * keep[size_t(j)] * d_o[o(i, d)];
          }
          d_sum += p * dp[size_t(j)];
        }
        for (int64_t j = first; j < n; ++j) {
          double ds = s[size_t(j)] * (dp[size_t(j)] - d_sum) * scale;
          for (int64_t d = 0; d < D; ++d) {
            r.dqkv[q(i, d)] += ds * qkv[k(j, d)];
            r.dqkv[k(j, d)] += ds * qkv[q(i, d)];
          }
        }
      }
    }
  return r;
}

struct Result {
  std::vector<double> o, lse, dqkv;
};

struct Unit {
  const char* name;
  Kernel (*forward)();
  Kernel (*grad)();
  Device (*device)(int threads);
};
// The oracle of tests/ops.
template <bool grad>
Kernel in_double() {
  for (const Kernel& k : cpu_reference_kernels())
    if (std::string(k.op) == (grad ? "attention_grad" : "attention")) return k;
  throw std::runtime_error("there is no reference kernel of attention");
}
const Unit oracle{"oracle", in_double<false>, in_double<true>, test::this_cpu};
const Unit vectors{"vectors", cpu::attention_kernel, cpu::attention_grad_kernel, test::this_cpu};
const Unit amx{"amx", cpu::attention_amx_kernel, cpu::attention_grad_amx_kernel, test::this_cpu};
const Unit emulated{"emulated", cpu::attention_amx_kernel, cpu::attention_grad_amx_kernel, test::emulated_amx};
void PrintTo(const Unit& u, std::ostream* os) { *os << u.name; }

void add_extras(Call& call, const Case& c, const Scalars& scalars) {
  if (c.p > 0)
    call.in_struct(scalars);
  else
    call.absent();
  if (!c.document) return;
  std::vector<double> positions;
  for (int64_t i = 0; i < c.batch * c.tokens; ++i) positions.push_back(double(c.position(i % c.tokens)));
  call.in(DType::i32, Shape{c.batch, c.tokens}, positions);
}

Result run(const Unit& unit, const Case& c, const std::vector<double>& qkv, const std::vector<double>& d_o,
           double scale, const Scalars& scalars, int rng_id, int threads) {
  int64_t D = c.head_dim, W = (c.heads + 2 * c.kv_heads) * D, O = c.heads * D;
  Attrs attrs;
  attrs.set("heads", c.heads).set("kv_heads", c.kv_heads).set("scale", scale).set("causal", c.causal);
  attrs.set("p", c.p).set("rng_id", rng_id);
  if (c.window) attrs.set("window", c.window);
  Result r;
  Call f("attention");
  f.device = unit.device(threads);
  f.instr.attrs = attrs;
  f.in(c.dtype, Shape{c.batch, c.tokens, W}, qkv);
  add_extras(f, c, scalars);
  ValueId o = f.out(c.dtype, Shape{c.batch, c.tokens, O}), lse = f.out(DType::f32, Shape{c.batch, c.heads, c.tokens});
  f.run(unit.forward(), threads);
  r.o = f.read(o), r.lse = f.read(lse);
  Call b("attention_grad");
  b.device = unit.device(threads);
  b.instr.attrs = attrs;
  b.in(c.dtype, Shape{c.batch, c.tokens, O}, d_o);
  b.in(c.dtype, Shape{c.batch, c.tokens, W}, qkv);
  b.in(c.dtype, Shape{c.batch, c.tokens, O}, r.o);
  b.in(DType::f32, Shape{c.batch, c.heads, c.tokens}, r.lse);
  add_extras(b, c, scalars);
  ValueId d = b.out(c.dtype, Shape{c.batch, c.tokens, W});
  b.run(unit.grad(), threads);
  r.dqkv = b.read(d);
  return r;
}

class Attention : public testing::TestWithParam<std::tuple<Unit, Case>> {};

TEST_P(Attention, EqualsTheFormula) {
  const auto& [unit, c] = GetParam();
  if (unit.name == amx.name && active_isa() != Isa::amx) GTEST_SKIP() << "this process has no AMX";
  int64_t W = (c.heads + 2 * c.kv_heads) * c.head_dim, O = c.heads * c.head_dim;
  auto qkv = random_values(c.dtype, c.batch * c.tokens * W, 1);
  auto d_o = random_values(c.dtype, c.batch * c.tokens * O, 2);
  Scalars scalars{};
  scalars.seed = 0x123456789abcdefull, scalars.sample_base = 1000;
  double scale = 1 / std::sqrt(double(c.head_dim));
  Reference want = reference(c, qkv, d_o, scale, scalars, 5);
  Result got = run(unit, c, qkv, d_o, scale, scalars, 5, 3);
  // Float arithmetic over sums of up to a few hundred terms of size 1; half precision rounds o
  // (input of the backward pass) and the gradients once: 2^-9 and 2^-11 relative. Matrix units
  // round probabilities and dS too: 2^-9 of sums of p |v|, near 1 here, so o is within 2^-8 of 1 +
  // |o|. A gradient adds the effect of o's two roundings on dS, and dS' own rounding: four times as
  // much. The sum of probabilities, and so lse, is a sum of floats everywhere.
  double eps = c.dtype == DType::f32 ? 2e-6 : c.dtype == DType::bf16 ? 4e-3 : 5e-4;
  EXPECT_LT(worst(got.lse, want.lse, 1), 2e-6);
  EXPECT_LT(worst(got.o, want.o, 1), eps);
  EXPECT_LT(worst(got.dqkv, want.dqkv, 1), 4 * eps);
  Result one = run(unit, c, qkv, d_o, scale, scalars, 5, 1);
  EXPECT_EQ(one.o, got.o);
  EXPECT_EQ(one.dqkv, got.dqkv) << "depends on the number of threads";
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Attention,
    testing::Combine(
        testing::Values(vectors),
        testing::Values(Case{1, 1, 1, 1, 1, true, 0, DType::f32}, Case{2, 65, 3, 3, 16, true, 0, DType::f32},
                        Case{1, 64, 2, 1, 64, true, 0, DType::f32}, Case{1, 130, 4, 2, 24, false, 0, DType::f32},
                        Case{1, 70, 2, 2, 7, true, 0.25, DType::f32}, Case{2, 72, 4, 2, 33, true, 0.1, DType::f32},
                        Case{1, 67, 1, 1, 256, true, 0, DType::f32}, Case{1, 600, 2, 1, 20, true, 0, DType::f32},
                        Case{1, 530, 1, 1, 80, false, 0.5, DType::f32}, Case{1, 90, 2, 2, 96, true, 0, DType::f16},
                        Case{3, 5, 2, 2, 3, false, 0, DType::f16})));

// Single tokens, lengths at and across blocks of 64 and slivers of 32, several segments of keys,
// every width of tiles.
INSTANTIATE_TEST_SUITE_P(
    Bf16, Attention,
    testing::Combine(
        testing::Values(vectors, amx, emulated),
        testing::Values(Case{1, 1, 1, 1, 32, true, 0, DType::bf16}, Case{2, 65, 6, 2, 64, true, 0, DType::bf16},
                        Case{1, 200, 2, 2, 48, true, 0.2, DType::bf16}, Case{3, 5, 2, 2, 3, false, 0, DType::bf16},
                        Case{1, 128, 2, 1, 128, true, 0, DType::bf16}, Case{2, 33, 2, 2, 32, false, 0, DType::bf16},
                        Case{1, 97, 2, 1, 64, false, 0.3, DType::bf16}, Case{1, 600, 2, 1, 32, true, 0, DType::bf16},
                        Case{1, 67, 1, 1, 256, true, 0, DType::bf16}, Case{1, 530, 1, 1, 64, false, 0, DType::bf16},
                        Case{2, 200, 2, 1, 64, true, 0, DType::bf16, 50},
                        Case{1, 330, 2, 2, 32, true, 0.1, DType::bf16, 130},
                        Case{1, 70, 1, 1, 64, true, 0, DType::bf16, 1})));

// Lengths around the borders of tiles, windows of one key, of less and more than a tile, and longer
// than the sequence; documents, dropout, grouped heads; segments of key blocks.
std::vector<Case> windows(DType t) {
  std::vector<Case> list;
  for (int64_t tokens : {1, 63, 65, 129})
    for (int window : {1, 7, 64, 200}) list.push_back({3, tokens, 1, 1, 32, true, 0, t, 0, window});
  for (Case c : {Case{2, 200, 6, 2, 64, true, 0, t, 0, 70}, Case{1, 200, 2, 2, 48, true, 0.2, t, 0, 33},
                 Case{2, 200, 2, 1, 64, true, 0, t, 90, 40}, Case{1, 330, 2, 2, 32, true, 0.1, t, 130, 100},
                 Case{1, 600, 2, 1, 32, true, 0, t, 0, 130}, Case{1, 600, 1, 1, 32, true, 0, t, 0, 3}})
    list.push_back(c);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Windows, Attention,
                         testing::Combine(testing::Values(oracle, vectors), testing::ValuesIn(windows(DType::f32))));
INSTANTIATE_TEST_SUITE_P(WindowsInBf16, Attention,
                         testing::Combine(testing::Values(vectors, amx, emulated),
                                          testing::ValuesIn(windows(DType::bf16))));
INSTANTIATE_TEST_SUITE_P(WindowsInF16, Attention,
                         testing::Combine(testing::Values(vectors), testing::ValuesIn(windows(DType::f16))));

TEST(AttentionReject, NamesTheReason) {
  Call c("attention");
  c.instr.attrs.set("heads", 1).set("kv_heads", 1).set("scale", 1.0).set("causal", 1);
  c.in(DType::f64, Shape{1, 2, 12}, std::vector<double>(24));
  c.out(DType::f64, Shape{1, 2, 4});
  c.out(DType::f32, Shape{1, 1, 2});
  EXPECT_NE(c.reject_reason().find("f64"), std::string::npos);
}

std::string refusal(const Kernel& k, DType t, double scale, int head_dim, bool has_amx = false) {
  Call c(k.op);
  c.instr.attrs.set("heads", 1).set("kv_heads", 1).set("scale", scale).set("causal", 1);
  Shape qkv{1, 2, 3 * head_dim}, o{1, 2, head_dim}, lse{1, 1, 2};
  bool grad = std::string(k.op) == "attention_grad";
  if (grad) c.value(t, o), c.instr.in.push_back(0);
  c.instr.in.push_back(c.value(t, qkv));
  if (grad) c.instr.in.push_back(c.value(t, o)), c.instr.in.push_back(c.value(DType::f32, lse));
  c.out(t, grad ? qkv : o);
  if (!grad) c.out(DType::f32, lse);
  Device d;
  d.amx = has_amx;
  return k.reject({c.program, c.instr, d});
}

TEST(AttentionReject, MatrixUnitsTakeBf16OfPositiveScale) {
  for (const Kernel& k : {cpu::attention_amx_kernel(), cpu::attention_grad_amx_kernel()}) {
    for (DType t : {DType::f32, DType::f16})
      EXPECT_NE(refusal(k, t, 0.125, 48, true).find("multiply bf16, not " + std::string(name(t))), std::string::npos);
    for (double scale : {0.0, -1.0}) EXPECT_EQ(refusal(k, DType::bf16, scale, 48, true), "scale is not positive");
    EXPECT_NE(refusal(k, DType::bf16, 0.125, 264, true).find("above 256"), std::string::npos);
  }
  for (const Kernel& k : {cpu::attention_amx_kernel(), cpu::attention_grad_amx_kernel()})
    for (bool has_amx : {false, true})
      EXPECT_EQ(refusal(k, DType::bf16, 0.125, 48, has_amx).empty(), has_amx) << refusal(k, DType::bf16, 0.125, 48);
}

}  // namespace
