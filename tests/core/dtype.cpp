#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace crest;

TEST(DType, HalfFormatsRoundTripEveryFinitePattern) {
  for (uint32_t b = 0; b < 65536; ++b) {
    float16 h{uint16_t(b)};
    float f = to_float(h);
    if (!std::isnan(f)) {
      EXPECT_EQ(to_float16(f).bits, h.bits) << b;
    }
    bfloat16 g{uint16_t(b)};
    float e = to_float(g);
    if (!std::isnan(e)) {
      EXPECT_EQ(to_bfloat16(e).bits, g.bits) << b;
    }
  }
}

TEST(DType, HalfFormatsAgreeWithTheCompilersConversions) {
  for (uint64_t i = 0; i < 200000; ++i) {
    float x = std::bit_cast<float>(uint32_t(i * 2654435761u * 40503u));
    if (std::isnan(x)) continue;
#ifdef __FLT16_MANT_DIG__
    EXPECT_EQ(to_float16(x).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(x))) << x;
#endif
    double nearest = to_float(to_bfloat16(x));
    if (std::isfinite(nearest)) {
      EXPECT_LE(std::abs(nearest - x), std::abs(double(x)) * 0x1p-8 + 0x1p-133);
    }
  }
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(NAN))));
  EXPECT_TRUE(std::isnan(to_float(to_float16(NAN))));
}
