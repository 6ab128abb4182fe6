// Quantization of rows to 8 bits, against float64.
#include "core/int8.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "core/random.h"

using namespace crest;

namespace {

struct Row {
  std::vector<int8_t> q;
  float scale = -1;
};

Row quantized(const std::vector<float>& x) {
  Row r;
  r.q.resize(x.size());
  quantize_row(x.data(), int64_t(x.size()), r.q.data(), r.scale);
  return r;
}

std::vector<float> normal_row(uint64_t stream, int64_t n, double deviation) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(deviation * normal(5, stream, i));
  return x;
}

}  // namespace

// Half a scale, and float's rounding of the scale and of the quotient: both by 2^-24 of at most 127
// scales.
TEST(Int8, EveryNumberIsWithinHalfAScale) {
  for (int64_t n : {1, 2, 65, 768, 3000})
    for (double deviation : {1e-30, 0.02, 1.0, 1e20}) {
      std::vector<float> x = normal_row(uint64_t(n), n, deviation);
      Row r = quantized(x);
      double most = 0, square = 0;
      for (float v : x) most = std::max(most, std::fabs(double(v)));
      EXPECT_NEAR(r.scale, most / 127, most / 127 * 0x1p-23);
      bool largest = false;
      for (size_t i = 0; i < x.size(); ++i) {
        double error = double(r.q[i]) * double(r.scale) - double(x[i]);
        ASSERT_LE(std::fabs(error), double(r.scale) * (0.5 + 127 * 0x1p-22)) << i << " of " << n;
        ASSERT_GE(r.q[i], -127);  // symmetric
        largest |= std::abs(int(r.q[i])) == 127;
        square += error * error;
      }
      EXPECT_TRUE(largest) << "the range is used";
      // Uniform errors: scale / sqrt(12).
      if (n >= 768) {
        EXPECT_NEAR(std::sqrt(square / double(n)) / r.scale, 1 / std::sqrt(12.0), 0.02);
      }
    }
}

TEST(Int8, DequantizingGivesWhatTheCodesMean) {
  std::vector<float> x = normal_row(1, 65, 0.02), back(x.size());
  Row r = quantized(x);
  dequantize_row(r.q.data(), r.scale, int64_t(x.size()), back.data());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i], float(r.q[i]) * r.scale);
  // Quantizing quantized numbers changes no code.
  EXPECT_EQ(quantized(back).q, r.q);
}

TEST(Int8, RowsThatHaveNoScale) {
  for (float tiny : {0.0f, -0.0f, FLT_TRUE_MIN, 100 * FLT_MIN}) {
    Row r = quantized({tiny, -tiny, 0});
    EXPECT_EQ(r.scale, 0) << tiny;
    EXPECT_EQ(r.q, std::vector<int8_t>(3, 0));
  }
  for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) EXPECT_TRUE(std::isnan(quantized({1, bad, 2}).scale)) << bad;
  Row edge = quantized({FLT_MAX, -FLT_MAX, FLT_MAX / 4});
  EXPECT_EQ(edge.q, (std::vector<int8_t>{127, -127, 32}));
  EXPECT_TRUE(std::isfinite(edge.scale));
}
