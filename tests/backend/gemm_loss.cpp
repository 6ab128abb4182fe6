#include <cmath>

#include "backend/gemm_harness.h"
#include "core/scalars.h"

using namespace crest;

namespace {

Array scalars_array(const Scalars& s) {
  Array a(DType::u8, {int64_t(sizeof(Scalars))});
  std::memcpy(a.data(), &s, sizeof s);
  return a;
}

struct LossCase {
  int64_t rows, cols, vocab;
};
const LossCase cases[] = {{1, 3, 3}, {5, 64, 50}, {9, 1100, 1027}, {3, 5000, 4999}};

// Probability error of float: |logit - max| ulp, exp and sum, below 4e-6 relative for these logits;
// stored rounding.
void check_loss(DType t, bool fused, bool overlay) {
  for (auto [rows, cols, vocab] : cases) {
    Array x(t, {rows, cols}), targets(DType::i32, {rows}), loss(DType::f32, {rows}), lse(DType::f32, {rows}),
        d(t, {rows, cols});
    x.random(1, 4);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = vocab; c < cols; ++c) x.set(r * cols + c, 30000);  // padding must not count
    for (int64_t r = 0; r < rows; ++r) targets.set(r, r % 4 == 3 ? -1 : double((r * 77 + 1) % vocab));
    std::vector<double> logits;
    for (int64_t i = 0; i < rows * cols; ++i) logits.push_back(x.at(i));
    Scalars s{};
    s.loss_scale = 128;
    Array scalars = scalars_array(s);
    Array& gradient = overlay ? x : d;
    KernelRun r;
    r.attrs.set("vocab", vocab).set("scale", 0.25);
    if (fused) {
      r.op = "cross_entropy_fused", r.in = {&x, &targets, &scalars}, r.out = {&loss, &gradient};
      r.run();
    } else {
      r.op = "cross_entropy", r.in = {&x, &targets}, r.out = {&loss, &lse};
      r.run();
      r.op = "cross_entropy_grad", r.in = {&x, &targets, &lse, &scalars}, r.out = {&gradient};
      r.run();
    }
    ASSERT_EQ(r.rejected, "");
    for (int64_t row = 0; row < rows; ++row) {
      const double* l = logits.data() + row * cols;
      double sum = 0, top = -1e300;
      for (int64_t c = 0; c < vocab; ++c) top = std::max(top, l[c]);
      for (int64_t c = 0; c < vocab; ++c) sum += std::exp(l[c] - top);
      double want_lse = top + std::log(sum);
      auto target = int64_t(targets.at(row));
      if (!fused) {
        ASSERT_NEAR(lse.at(row), want_lse, 4e-6 * (1 + std::abs(want_lse)));
      }
      ASSERT_NEAR(loss.at(row), target < 0 ? 0 : want_lse - l[target], 4e-6 * (1 + std::abs(want_lse)));
      for (int64_t c = 0; c < cols; ++c) {
        double want = 0;
        if (target >= 0 && c < vocab) want = (std::exp(l[c] - want_lse) - (c == target)) * 32;
        double tiny = t == DType::f16 ? 0x1p-25 : 0;  // f16 results below 2^-14 are subnormal
        ASSERT_NEAR(gradient.at(row * cols + c), want,
                    std::abs(want) * (1.01 * roundoff(t) + 4e-6) + 32 * 2e-7 * (c == target) + tiny)
            << name(t) << " " << row << "," << c;
      }
    }
  }
}

TEST(GemmLoss, CrossEntropyAndItsGradient) {
  for (DType t : float_types())
    for (bool overlay : {false, true}) check_loss(t, false, overlay);
}
TEST(GemmLoss, FusedCrossEntropy) {
  for (DType t : float_types())
    for (bool overlay : {false, true}) check_loss(t, true, overlay);
}

TEST(GemmLoss, ExtremeLogits) {
  float inf = INFINITY;
  Array x(DType::f32, {3, 2000}), targets(DType::i32, {3}), loss(DType::f32, {3}), lse(DType::f32, {3});
  for (int64_t i = 0; i < 6000; ++i) x.set(i, -inf);
  for (int64_t r = 0; r < 3; ++r) targets.set(r, 1999);
  x.set(1999, 3e4);                // everything else is masked
  x.set(2000, 5), x.set(3999, 5);  // two equal entries in different blocks
  x.set(4000, NAN), x.set(5999, 1);
  KernelRun r;
  r.op = "cross_entropy", r.in = {&x, &targets}, r.out = {&loss, &lse}, r.attrs.set("vocab", 2000);
  r.run();
  EXPECT_EQ(loss.at(0), 0);
  EXPECT_NEAR(loss.at(1), std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isnan(loss.at(2)));
}

// Rows with a masked first block. e^-x of their maximum is beyond the floats, a problem only for a
// gradient with exponentials relative to 0 there.
TEST(GemmLoss, GradientOfMaskedBlocks) {
  Array x(DType::f32, {1, 3000}), targets(DType::i32, {1}), loss(DType::f32, {1}), d(DType::f32, {1, 3000});
  Scalars values;
  values.loss_scale = values.loss_weight = 1;
  Array scalars = scalars_array(values);
  for (float maximum : {-88.7f, -200.0f, 3e4f}) {
    for (int64_t i = 0; i < 3000; ++i) x.set(i, i < 1500 ? -INFINITY : maximum);
    targets.set(0, 2999);
    KernelRun r;
    r.op = "cross_entropy_fused", r.in = {&x, &targets, &scalars}, r.out = {&loss, &d};
    r.attrs.set("vocab", 3000), r.attrs.set("scale", 1.0);
    r.run();
    EXPECT_NEAR(loss.at(0), std::log(1500.0), 1e-4) << maximum;
    for (int64_t i = 0; i < 3000; ++i)
      ASSERT_NEAR(d.at(i), i < 1500 ? 0 : i == 2999 ? 1 / 1500.0 - 1 : 1 / 1500.0, 1e-7) << maximum << " " << i;
  }
}

}  // namespace
