// Norms, softmax, rope, head movement and cached attention against the formulas in double
// precision.
#include <gtest/gtest.h>

#include <cmath>

#include "core/scalars.h"
#include "fast_call.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

double tolerance(DType t) { return t == DType::f32 ? 2e-6 : t == DType::bf16 ? 4e-3 : 6e-4; }

class Rows : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Rows, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& i) { return std::string(name(i.param)); });

struct Moments {
  double mean, rstd;
};
Moments moments(const double* x, int64_t n, bool rms, double eps) {
  double mean = 0, square = 0;
  if (!rms)
    for (int64_t i = 0; i < n; ++i) mean += x[i] / double(n);
  for (int64_t i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean) / double(n);
  return {mean, 1 / std::sqrt(square + eps)};
}

TEST_P(Rows, NormAndAddNorm) {
  DType t = GetParam();
  for (bool rms : {false, true})
    for (bool with_add : {false, true})
      for (int64_t n : {1, 5, 48, 259}) {
        int64_t rows = 67;
        auto a = random_values(t, rows * n, 1, 2), b = random_values(t, rows * n, 2), g = random_values(t, n, 3);
        auto beta = random_values(DType::f32, n, 4);
        for (double& x : a) x += 3;
        Call c(with_add ? "add_norm" : "norm");
        c.instr.attrs.set("kind", rms ? "rms" : "layer").set("eps", 1e-5);
        ValueId va = c.in(t, Shape{rows, n}, a);
        a = c.read(va);  // rounded
        if (with_add) c.in(t, Shape{rows, n}, b);
        c.in(t, Shape{n}, g);
        if (!rms) c.in(DType::f32, Shape{n}, beta);
        ValueId vs = with_add ? c.out(t, Shape{rows, n}) : va;
        ValueId y = c.out(t, Shape{rows, n}), rstd = c.out(DType::f32, Shape{rows});
        ValueId mean = rms ? no_value : c.out(DType::f32, Shape{rows});
        c.run(3);
        auto s = c.read(vs);
        if (with_add)
          for (size_t i = 0; i < s.size(); ++i) {
            ASSERT_NEAR(s[i], a[i] + b[i], tolerance(t) * (1 + std::abs(s[i])));
          }
        std::vector<double> want(a.size()), want_rstd(static_cast<size_t>(rows)), want_mean(static_cast<size_t>(rows));
        for (int64_t r = 0; r < rows; ++r) {
          Moments m = moments(s.data() + r * n, n, rms, 1e-5);
          want_rstd[size_t(r)] = m.rstd, want_mean[size_t(r)] = m.mean;
          for (int64_t i = 0; i < n; ++i)
            want[size_t(r * n + i)] =
                (s[size_t(r * n + i)] - m.mean) * m.rstd * g[size_t(i)] + (rms ? 0 : beta[size_t(i)]);
        }
        EXPECT_LT(worst(c.read(y), want, 1), tolerance(t)) << rms << with_add << n;
        EXPECT_LT(worst(c.read(rstd), want_rstd, 0), 2e-6);
        if (!rms) {
          EXPECT_LT(worst(c.read(mean), want_mean, 1), 1e-6);
        }
      }
}

TEST_P(Rows, NormGrad) {
  DType t = GetParam();
  for (bool rms : {false, true})
    for (bool extra : {false, true})
      for (int64_t n : {3, 48, 130}) {
        int64_t rows = 100;
        auto dy = random_values(t, rows * n, 1), x = random_values(t, rows * n, 2), g = random_values(t, n, 3);
        auto dres = random_values(t, rows * n, 4), acc = random_values(DType::f32, n, 5);
        std::vector<double> rstd, mean, want(dy.size()), dgamma(size_t(n), 0.0), dbeta(size_t(n), 0.0);
        if (extra) dgamma = acc, dbeta = acc;
        for (int64_t r = 0; r < rows; ++r) {
          Moments m = moments(x.data() + r * n, n, rms, 1e-5);
          m.rstd = float(m.rstd), m.mean = float(m.mean);
          rstd.push_back(m.rstd), mean.push_back(m.mean);
          double c = 0, b = 0;
          for (int64_t i = 0; i < n; ++i) {
            auto e = size_t(r * n + i);
            double xhat = (x[e] - m.mean) * m.rstd, gi = dy[e] * g[size_t(i)];
            c += gi / double(n), b += gi * xhat / double(n);
            dgamma[size_t(i)] += dy[e] * xhat, dbeta[size_t(i)] += dy[e];
          }
          for (int64_t i = 0; i < n; ++i) {
            auto e = size_t(r * n + i);
            double xhat = (x[e] - m.mean) * m.rstd;
            want[e] = m.rstd * (dy[e] * g[size_t(i)] - (rms ? 0 : c) - xhat * b) + (extra ? dres[e] : 0);
          }
        }
        std::vector<double> previous;
        for (int threads : {1, 3}) {
          Call c("norm_grad");
          c.instr.attrs.set("kind", rms ? "rms" : "layer").set("beta", rms ? 0 : 1);
          c.in(t, Shape{rows, n}, dy), c.in(t, Shape{rows, n}, x), c.in(t, Shape{n}, g);
          c.in(DType::f32, Shape{rows}, rstd);
          if (rms)
            c.absent();
          else
            c.in(DType::f32, Shape{rows}, mean);
          ValueId dx = no_value;
          if (extra) {
            dx = c.in(t, Shape{rows, n}, dres);  // dx overlays dres
            c.in(DType::f32, Shape{n}, acc);
            if (!rms) c.in(DType::f32, Shape{n}, acc);
            c.instr.out.push_back(dx);
          } else {
            dx = c.out(t, Shape{rows, n});
          }
          ValueId dg = c.out(DType::f32, Shape{n}), db = rms ? no_value : c.out(DType::f32, Shape{n});
          c.run(threads);
          EXPECT_LT(worst(c.read(dx), want, 1), 2 * tolerance(t)) << rms << extra << n;
          EXPECT_LT(worst(c.read(dg), dgamma, 10), 2e-6);
          if (!rms) {
            EXPECT_LT(worst(c.read(db), dbeta, 10), 2e-6);
          }
          if (!previous.empty()) {
            EXPECT_EQ(previous, c.read(dg)) << "depends on the number of threads";
          }
          previous = c.read(dg);
        }
      }
}

TEST_P(Rows, SoftmaxMaskAndGradient) {
  DType t = GetParam();
  for (int64_t n : {1, 6, 33, 100}) {
    Shape s{2, 2, n, n};
    auto x = random_values(t, s.numel(), 1, 4), dy = random_values(t, s.numel(), 2);
    Call m("causal_mask");
    m.in(t, s, x);
    ValueId masked = m.out(t, s);
    m.run();
    auto xm = m.read(masked);
    for (int64_t i = 0; i < s.numel(); ++i) {
      bool hidden = i % n > i / n % n;
      ASSERT_EQ(xm[size_t(i)], hidden ? -INFINITY : x[size_t(i)]);
    }
    Call c("softmax");
    c.in(t, s, xm);
    ValueId y = c.out(t, s);
    c.run();
    auto p = c.read(y);
    Call b("softmax_grad");
    ValueId in_place = b.in(t, s, dy);
    b.in(t, s, p);
    b.instr.out.push_back(in_place);
    b.run();
    auto dx = b.read(in_place);
    for (int64_t r = 0; r < s.rows(); ++r) {
      double top = -INFINITY, total = 0, dot = 0;
      for (int64_t i = r * n; i < (r + 1) * n; ++i) top = std::max(top, xm[size_t(i)]);
      for (int64_t i = r * n; i < (r + 1) * n; ++i)
        total += std::exp(xm[size_t(i)] - top), dot += dy[size_t(i)] * p[size_t(i)];
      for (int64_t i = r * n; i < (r + 1) * n; ++i) {
        ASSERT_NEAR(p[size_t(i)], std::exp(xm[size_t(i)] - top) / total, tolerance(t));
        ASSERT_NEAR(dx[size_t(i)], p[size_t(i)] * (dy[size_t(i)] - dot), 2 * tolerance(t));
      }
    }
  }
  Call c("softmax");
  c.in(t, Shape{1, 20}, std::vector<double>(20, -INFINITY));
  ValueId y = c.out(t, Shape{1, 20});
  c.run();
  EXPECT_EQ(c.read(y), std::vector<double>(20, 0.0));
}

TEST_P(Rows, RopeRotatesAndInverts) {
  DType t = GetParam();
  int heads = 3, kv = 1;
  for (int64_t dim : {2, 6, 64})
    for (int position : {-1, 11})
      for (bool scaled : {false, true}) {
        int64_t B = 2, T = 9, W = (heads + 2 * kv) * dim;
        auto x = random_values(t, B * T * W, 1);
        Attrs a;
        a.set("heads", heads).set("kv_heads", kv).set("theta", 10000.0).set("inverse", 0);
        if (scaled) a.set("factor", 8.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0);
        if (scaled) a.set("original_context", int64_t(256));
        Scalars scalars{};
        scalars.position = position;
        Call c("rope");
        c.instr.attrs = a;
        c.in(t, Shape{B, T, W}, x);
        if (position >= 0) c.in_struct(scalars);
        ValueId y = c.out(t, Shape{B, T, W});
        c.run();
        auto got = c.read(y), want = x;
        for (int64_t r = 0; r < B * T; ++r)
          for (int64_t h = 0; h < heads + kv; ++h)
            for (int64_t i = 0; i < dim / 2; ++i) {
              double f = std::pow(10000.0, -2.0 * double(i) / double(dim));
              if (scaled) {  // as Hugging Face writes it: by wave length
                double wave = 2 * M_PI / f, smooth = (256 / wave - 1) / (4 - 1);
                if (wave > 256 / 1.0)
                  f /= 8;
                else if (wave >= 256 / 4.0)
                  f = (1 - smooth) * f / 8 + smooth * f;
              }
              double angle = double(r % T + std::max(position, 0)) * f;
              auto e = size_t(r * W + h * dim + i), e2 = e + size_t(dim / 2);
              want[e] = x[e] * std::cos(angle) - x[e2] * std::sin(angle);
              want[e2] = x[e2] * std::cos(angle) + x[e] * std::sin(angle);
            }
        EXPECT_LT(worst(got, want, 1), tolerance(t)) << dim << " " << position << scaled;
        Call back("rope");
        back.instr.attrs = a;
        back.instr.attrs.set("inverse", 1);
        ValueId v = back.in(t, Shape{B, T, W}, got);
        if (position >= 0) back.in_struct(scalars);
        back.instr.out.push_back(v);  // in place
        back.run();
        EXPECT_LT(worst(back.read(v), x, 1), 4 * tolerance(t));
      }
}

TEST_P(Rows, JoinHeadsReadsViews) {
  DType t = GetParam();
  int64_t B = 2, T = 5, H = 3, G = 1, D = 4, W = (H + 2 * G) * D;
  auto x = random_values(t, B * T * W, 1);
  Call c("join_heads");
  // Contiguous [B,heads,T,D] inputs, the last one as a transposed view of [B,T,1,D].
  std::vector<double> q(size_t(B * H * T * D)), k(size_t(B * G * T * D)), v(k.size());
  for (int64_t b = 0; b < B; ++b)
    for (int64_t s = 0; s < T; ++s)
      for (int64_t d = 0; d < D; ++d) {
        for (int64_t h = 0; h < H; ++h)
          q[size_t(((b * H + h) * T + s) * D + d)] = x[size_t((b * T + s) * W + h * D + d)];
        k[size_t((b * T + s) * D + d)] = x[size_t((b * T + s) * W + H * D + d)];
        v[size_t((s * B + b) * D + d)] = x[size_t((b * T + s) * W + (H + G) * D + d)];
      }
  c.in(t, Shape{B, H, T, D}, q), c.in(t, Shape{B, G, T, D}, k);
  ValueId view = c.in(t, Shape{B, G, T, D}, v);
  c.program.at(view).layout.strides = Shape{D, T * B * D, B * D, 1};
  ValueId y = c.out(t, Shape{B, T, W});
  c.run();
  EXPECT_EQ(c.read(y), x);
}

TEST_P(Rows, CacheAppendAndCachedAttention) {
  DType t = GetParam();
  struct Case {
    int64_t tokens, position, length;
    int heads, kv;
    int64_t dim, window = 0;
  };
  for (Case k : {Case{1, 0, 1, 2, 1, 8}, Case{1, 70, 1, 6, 2, 33}, Case{4, 9, 3, 2, 1, 16}, Case{80, 0, 80, 4, 2, 20},
                 Case{70, 30, 66, 2, 2, 64}, Case{16, 100, 12, 3, 1, 7}, Case{1, 127, 1, 1, 1, 160},
                 Case{1, 70, 1, 6, 2, 33, 7}, Case{1, 127, 1, 1, 1, 64, 1}, Case{4, 9, 3, 2, 1, 16, 5},
                 Case{80, 0, 80, 4, 2, 20, 9}, Case{70, 30, 66, 2, 2, 64, 64}, Case{1, 3, 1, 2, 1, 8, 100},
                 Case{16, 100, 12, 3, 1, 7, 30}, Case{1, 90, 1, 2, 1, 8, 500}}) {
    int64_t B = 2, C = 128, W = (k.heads + 2 * k.kv) * k.dim, G = k.kv, D = k.dim;
    auto qkv = random_values(t, B * k.tokens * W, 1), cache = random_values(t, B * 2 * G * C * D, 2);
    Scalars scalars{};
    scalars.position = int32_t(k.position), scalars.length = int32_t(k.length);
    Attrs a;
    a.set("heads", k.heads).set("kv_heads", k.kv).set("scale", 1 / std::sqrt(double(D)));
    Call append("cache_append");
    append.instr.attrs = a;
    append.in(t, Shape{B, k.tokens, W}, qkv);
    ValueId v = append.in(t, Shape{B, 2, G, C, D}, cache);
    append.in_struct(scalars);
    append.instr.out.push_back(v);
    append.run();
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < 2 * G; ++h)
        for (int64_t s = 0; s < k.length; ++s)
          for (int64_t d = 0; d < D; ++d)
            cache[size_t(((b * 2 * G + h) * C + k.position + s) * D + d)] =
                qkv[size_t((b * k.tokens + s) * W + (k.heads + h) * D + d)];
    ASSERT_EQ(append.read(v), cache);
    if (k.window) a.set("window", k.window);
    Call c("cached_attention");
    c.instr.attrs = a;
    c.in(t, Shape{B, k.tokens, W}, qkv), c.in(t, Shape{B, 2, G, C, D}, cache);
    c.in_struct(scalars);
    ValueId o = c.out(t, Shape{B, k.tokens, k.heads * D});
    c.run(3);
    std::vector<double> want(size_t(B * k.tokens * k.heads * D), 0.0);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < k.heads; ++h)
        for (int64_t s = 0; s < k.length; ++s) {
          int64_t n = k.position + s + 1, g = h / (k.heads / G);
          int64_t first = k.window ? std::max<int64_t>(n - k.window, 0) : 0;
          std::vector<double> p(static_cast<size_t>(n));
          double total = 0;
          for (int64_t j = first; j < n; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < D; ++d)
              dot += qkv[size_t((b * k.tokens + s) * W + h * D + d)] * cache[size_t(((b * 2 * G + g) * C + j) * D + d)];
            total += p[size_t(j)] = std::exp(dot / std::sqrt(double(D)));
          }
          for (int64_t j = first; j < n; ++j)
            for (int64_t d = 0; d < D; ++d)
              want[size_t(((b * k.tokens + s) * k.heads + h) * D + d)] +=
                  p[size_t(j)] / total * cache[size_t(((b * 2 * G + G + g) * C + j) * D + d)];
        }
    EXPECT_LT(worst(c.read(o), want, 1), tolerance(t))
        << k.tokens << " " << k.position << " " << k.length << " " << k.window;
  }
}

}  // namespace
