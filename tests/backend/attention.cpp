// attention and attention_grad against the formula in double precision with the T x T matrix in memory.
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "core/scalars.h"
#include "fast_call.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

struct Case {
  int64_t batch, tokens;
  int heads, kv_heads, head_dim;
  bool causal;
  double p;
  DType dtype;
};

void PrintTo(const Case& c, std::ostream* os) {
  *os << "B" << c.batch << " T" << c.tokens << " H" << c.heads << "/" << c.kv_heads << " D" << c.head_dim << " causal "
      << c.causal << " p " << c.p << " " << name(c.dtype);
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
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t d = 0; d < D; ++d) s[size_t(j)] += scale * qkv[q(i, d)] * qkv[k(j, d)];
          m = std::max(m, s[size_t(j)]);
          if (c.p > 0) {
            uint64_t stream = dropout_stream(uint64_t(scalars.sample_base + b), rng_id);
            bool kept = uniform(random_bits(scalars.seed, stream, uint64_t((h * T + i) * T + j))) >= c.p;
            keep[size_t(j)] = kept ? 1 / (1 - c.p) : 0;
          }
        }
        for (double& x : s) l += std::exp(x - m);
        r.lse[size_t((b * c.heads + h) * T + i)] = m + std::log(l);
        for (int64_t j = 0; j < n; ++j) {
          double p = s[size_t(j)] = std::exp(s[size_t(j)] - m) / l;
          for (int64_t d = 0; d < D; ++d) {
            r.o[o(i, d)] += p * keep[size_t(j)] * qkv[v(j, d)];
            dp[size_t(j)] += keep[size_t(j)] * d_o[o(i, d)] * qkv[v(j, d)];
            r.dqkv[v(j, d)] += p * keep[size_t(j)] * d_o[o(i, d)];
          }
          d_sum += p * dp[size_t(j)];
        }
        for (int64_t j = 0; j < n; ++j) {
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

Result run(const Case& c, const std::vector<double>& qkv, const std::vector<double>& d_o, double scale,
           const Scalars& scalars, int rng_id, int threads) {
  int64_t D = c.head_dim, W = (c.heads + 2 * c.kv_heads) * D, O = c.heads * D;
  Attrs attrs;
  attrs.set("heads", c.heads).set("kv_heads", c.kv_heads).set("scale", scale).set("causal", c.causal);
  attrs.set("p", c.p).set("rng_id", rng_id);
  Result r;
  Call f("attention");
  f.instr.attrs = attrs;
  f.in(c.dtype, Shape{c.batch, c.tokens, W}, qkv);
  if (c.p > 0) f.in_struct(scalars);
  ValueId o = f.out(c.dtype, Shape{c.batch, c.tokens, O}), lse = f.out(DType::f32, Shape{c.batch, c.heads, c.tokens});
  f.run(threads);
  r.o = f.read(o), r.lse = f.read(lse);
  Call b("attention_grad");
  b.instr.attrs = attrs;
  b.in(c.dtype, Shape{c.batch, c.tokens, O}, d_o);
  b.in(c.dtype, Shape{c.batch, c.tokens, W}, qkv);
  b.in(c.dtype, Shape{c.batch, c.tokens, O}, r.o);
  b.in(DType::f32, Shape{c.batch, c.heads, c.tokens}, r.lse);
  if (c.p > 0) b.in_struct(scalars);
  ValueId d = b.out(c.dtype, Shape{c.batch, c.tokens, W});
  b.run(threads);
  r.dqkv = b.read(d);
  return r;
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, EqualsTheFormula) {
  const Case& c = GetParam();
  int64_t W = (c.heads + 2 * c.kv_heads) * c.head_dim, O = c.heads * c.head_dim;
  auto qkv = random_values(c.dtype, c.batch * c.tokens * W, 1);
  auto d_o = random_values(c.dtype, c.batch * c.tokens * O, 2);
  Scalars scalars{};
  scalars.seed = 0x123456789abcdefull, scalars.sample_base = 1000;
  double scale = 1 / std::sqrt(double(c.head_dim));
  Reference want = reference(c, qkv, d_o, scale, scalars, 5);
  Result got = run(c, qkv, d_o, scale, scalars, 5, 3);
  // Float arithmetic over sums of up to a few hundred terms of size 1; half precision rounds o (which the backward
  // pass reads) and the gradients once: 2^-9 and 2^-11 relative.
  double eps = c.dtype == DType::f32 ? 2e-6 : c.dtype == DType::bf16 ? 4e-3 : 5e-4;
  EXPECT_LT(worst(got.lse, want.lse, 1), 2e-6);
  EXPECT_LT(worst(got.o, want.o, 1), eps);
  EXPECT_LT(worst(got.dqkv, want.dqkv, 1), 4 * eps);
  Result one = run(c, qkv, d_o, scale, scalars, 5, 1);
  EXPECT_EQ(one.o, got.o);
  EXPECT_EQ(one.dqkv, got.dqkv) << "depends on the number of threads";
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Attention,
    testing::Values(Case{1, 1, 1, 1, 1, true, 0, DType::f32}, Case{2, 65, 3, 3, 16, true, 0, DType::f32},
                    Case{1, 64, 2, 1, 64, true, 0, DType::f32}, Case{1, 130, 4, 2, 24, false, 0, DType::f32},
                    Case{1, 70, 2, 2, 7, true, 0.25, DType::f32}, Case{2, 72, 4, 2, 33, true, 0.1, DType::f32},
                    Case{1, 67, 1, 1, 256, true, 0, DType::f32}, Case{1, 600, 2, 1, 20, true, 0, DType::f32},
                    Case{1, 530, 1, 1, 80, false, 0.5, DType::f32}, Case{2, 65, 6, 2, 64, true, 0, DType::bf16},
                    Case{1, 200, 2, 2, 48, true, 0.2, DType::bf16}, Case{1, 90, 2, 2, 96, true, 0, DType::f16},
                    Case{3, 5, 2, 2, 3, false, 0, DType::f16}));

TEST(AttentionReject, NamesTheReason) {
  Call c("attention");
  c.instr.attrs.set("heads", 1).set("kv_heads", 1).set("scale", 1.0).set("causal", 1);
  c.in(DType::f64, Shape{1, 2, 12}, std::vector<double>(24));
  c.out(DType::f64, Shape{1, 2, 4});
  c.out(DType::f32, Shape{1, 1, 2});
  EXPECT_NE(c.reject_reason().find("f64"), std::string::npos);
}

}  // namespace
