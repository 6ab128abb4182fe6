#include <cmath>

#include "backend/gemm_harness.h"
#include "core/scalars.h"
#include "core/split_float.h"

using namespace crest;

namespace {

Array scalars_array(const Scalars& s) {
  Array a(DType::u8, {int64_t(sizeof(Scalars))});
  std::memcpy(a.data(), &s, sizeof s);
  return a;
}
Scalars scalars_of(Array& a) {
  Scalars s;
  std::memcpy(&s, a.data(), sizeof s);
  return s;
}

// Every float operation of the update rounds once (2^-24); the quotient of small moments amplifies
// this a little.
void check_adamw(DType gradient, const DType* weight, bool found_inf) {
  for (int64_t n : {1, 15, 1000, 70001}) {
    Array master(DType::f32, {n}), m(DType::f32, {n}), v(DType::f32, {n}), g(gradient, {n}, 1),
        w(weight ? *weight : DType::f32, {n});
    master.random(1), m.random(2, 0.1), g.random(4), w.random(5);
    for (int64_t i = 0; i < n; ++i) v.set(i, 0.01 + 0.1 * std::abs(normal(3, 3, uint64_t(i))));
    std::vector<double> p0, m0, v0, w0;
    for (int64_t i = 0; i < n; ++i)
      p0.push_back(master.at(i)), m0.push_back(m.at(i)), v0.push_back(v.at(i)), w0.push_back(w.at(i));
    Scalars s{};
    s.lr = 1e-2f, s.adam_step = 3, s.grad_factor = 0.5f, s.found_inf = found_inf, s.loss_scale = 1;
    Array scalars = scalars_array(s);
    KernelRun r;
    r.op = "adamw", r.in = {&scalars, &master, &m, &v, &g}, r.out = {&master, &m, &v};
    if (weight) r.in.push_back(&w), r.out.push_back(&w);
    r.attrs.set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1);
    r.run();
    ASSERT_EQ(r.rejected, "");
    for (int64_t i = 0; i < n; ++i) {
      auto u = size_t(i);
      if (found_inf) {
        ASSERT_EQ(master.at(i), p0[u]);
        ASSERT_EQ(m.at(i), m0[u]);
        ASSERT_EQ(v.at(i), v0[u]);
        continue;
      }
      double grad = g.at(i) * 0.5, mm = 0.9 * m0[u] + 0.1 * grad, vv = 0.95 * v0[u] + 0.05 * grad * grad;
      double step = mm / (1 - std::pow(0.9, 4)) / (std::sqrt(vv / (1 - std::pow(0.95, 4))) + 1e-8);
      double want = p0[u] - double(s.lr) * (step + 0.1 * p0[u]);
      ASSERT_NEAR(m.at(i), mm, 2e-7 * (0.1 + std::abs(m0[u]) + std::abs(grad)));
      ASSERT_NEAR(v.at(i), vv, 4e-7 * vv);
      ASSERT_NEAR(master.at(i), want, 2e-7 * (std::abs(p0[u]) + 0.1));
      if (weight) {
        Array once(*weight, {1});
        once.set(0, *weight == DType::bf16 ? to_float(split(float(master.at(i))).high) : master.at(i));
        ASSERT_EQ(w.at(i), once.at(0)) << "the copy is the rounded master weight";
      }
    }
  }
}

TEST(GemmUpdate, Adamw) {
  for (DType g : float_types()) {
    check_adamw(g, nullptr, false);
    for (DType w : float_types()) check_adamw(g, &w, false);
  }
}
TEST(GemmUpdate, AdamwSkipsWhenFoundInf) { check_adamw(DType::f32, &float_types()[1], true); }

TEST(GemmUpdate, FinishStep) {
  Scalars s{};
  s.loss_scale = 1024, s.good_steps = 9, s.adam_step = 41;
  Array a = scalars_array(s);
  KernelRun r;
  r.op = "finish_step", r.in = {&a}, r.out = {&a};
  r.attrs.set("dynamic", 1).set("growth_interval", 10).set("min_scale", 1.0).set("max_scale", 65536.0);
  r.run();
  EXPECT_EQ(scalars_of(a).loss_scale, 2048);
  EXPECT_EQ(scalars_of(a).good_steps, 0);
  EXPECT_EQ(scalars_of(a).adam_step, 42);
  s = scalars_of(a);
  s.found_inf = 1, s.good_steps = 4;
  std::memcpy(a.data(), &s, sizeof s);
  r.run();
  EXPECT_EQ(scalars_of(a).loss_scale, 1024);
  EXPECT_EQ(scalars_of(a).good_steps, 0);
  EXPECT_EQ(scalars_of(a).adam_step, 42);
  EXPECT_EQ(scalars_of(a).skipped, 1);
  r.attrs.set("dynamic", 0);
  r.run();
  EXPECT_EQ(scalars_of(a).loss_scale, 1024);
  EXPECT_EQ(scalars_of(a).skipped, 2);
}

}  // namespace
