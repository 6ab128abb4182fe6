// Conversions to and from 8-bit floats, against tables of all their numbers.
#include "core/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "core/dtype.h"

using namespace crest;

namespace {

// The magnitude of a code by its definition: (1 + m / 2^mantissa) 2^(e - bias), without the 1 and
// with e = 1 for e = 0. NaN and infinity: as in the format.
template <class F>
double defined(int code) {
  int exponent = code >> F::mantissa, fraction = code & ((1 << F::mantissa) - 1);
  if constexpr (F::mantissa == 3) {
    if (code == 0x7f) return NAN;
  } else {
    if (exponent == 31) return fraction ? NAN : INFINITY;
  }
  return std::ldexp((exponent > 0) + double(fraction) / (1 << F::mantissa), std::max(exponent, 1) - F::bias);
}

// The code with the nearest number, the even one of two: by search in all finite numbers.
template <class F>
uint8_t nearest(double x) {
  static const std::vector<double> numbers = [] {
    std::vector<double> list;
    for (int c = 0; c <= F::largest; ++c) list.push_back(defined<F>(c));
    return list;
  }();
  double a = std::fabs(x);
  size_t above = size_t(std::lower_bound(numbers.begin(), numbers.end(), a) - numbers.begin()), best = above;
  if (above == numbers.size()) best = numbers.size() - 1;
  if (above > 0 && above < numbers.size()) {
    double up = numbers[above] - a, down = a - numbers[above - 1];
    if (down < up || (down == up && (above - 1) % 2 == 0)) best = above - 1;
  }
  return uint8_t(best | (std::signbit(x) ? 0x80 : 0));
}

template <class F>
void check(float x) {
  F code = to_float8<F>(x);
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(to_float(code)));
    ASSERT_EQ(code.bits, std::signbit(x) ? 0xff : 0x7f);
    return;
  }
  ASSERT_EQ(int(code.bits), int(nearest<F>(double(x)))) << x;
  ASSERT_EQ(saturates<F>(x), std::fabs(x) > defined<F>(F::largest)) << x;
  ASSERT_EQ(vanishes(x, code), x != 0 && to_float(code) == 0) << x;
}

template <class F>
class Float8 : public testing::Test {};
using Formats = testing::Types<float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(Float8, Formats);

}  // namespace

TYPED_TEST(Float8, EveryCodeHasItsNumber) {
  for (int c = 0; c < 256; ++c) {
    double expected = defined<TypeParam>(c & 0x7f);
    float x = to_float(TypeParam{uint8_t(c)});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(x)) << c;
      continue;
    }
    EXPECT_EQ(x, float(c < 128 ? expected : -expected)) << c;
    EXPECT_EQ(std::signbit(x), c >= 128) << c;
    if (std::isfinite(expected)) {
      EXPECT_EQ(int(to_float8<TypeParam>(x).bits), c);
    }
  }
  EXPECT_EQ(largest_of<TypeParam>(), defined<TypeParam>(TypeParam::largest));
}

// Ties are among them: bf16 has more bits of mantissa than both formats.
TYPED_TEST(Float8, EveryBf16RoundsToTheNearest) {
  for (uint32_t b = 0; b < 65536; ++b) check<TypeParam>(to_float(bfloat16{uint16_t(b)}));
}

TYPED_TEST(Float8, FloatsBesideATieRoundToTheirSide) {
  for (int c = 0; c < TypeParam::largest; ++c) {
    auto tie = float((defined<TypeParam>(c) + defined<TypeParam>(c + 1)) / 2);
    for (float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, FLT_MAX)}) {
      check<TypeParam>(x);
      check<TypeParam>(-x);
    }
  }
  for (float x : {0.0f, -0.0f, FLT_MIN, FLT_TRUE_MIN, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY}) check<TypeParam>(x);
}

TYPED_TEST(Float8, ScaleIsTheSmallestPowerOfTwoThatHoldsTheAmax) {
  double most = defined<TypeParam>(TypeParam::largest);
  for (int k = -40; k <= 40; ++k)
    for (float base : {1.0f, 1.5f, 1.75f, std::nextafter(1.75f, 2.0f), std::nextafter(2.0f, 0.0f)}) {
      float amax = std::ldexp(base, k);
      int e = scale_exponent<TypeParam>(amax, 0);
      EXPECT_LE(double(amax), std::ldexp(most, e)) << amax;
      EXPECT_GT(double(amax), std::ldexp(most, e - 1)) << amax;
      EXPECT_EQ(scale_exponent<TypeParam>(amax, 3), e + 3);
      EXPECT_EQ(power_of_two(e), std::ldexp(1.0f, e));
    }
  EXPECT_EQ(scale_exponent<TypeParam>(FLT_TRUE_MIN, 0), -60);
  EXPECT_EQ(scale_exponent<TypeParam>(FLT_MAX, 8), 60);
}
