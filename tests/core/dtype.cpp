#include "core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/split_float.h"

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
#if defined(__ARM_FP16_FORMAT_IEEE)  // g++ 12 has no _Float16 in C++ there
    EXPECT_EQ(to_float16(x).bits, std::bit_cast<uint16_t>(static_cast<__fp16>(x))) << x;
#elif defined(__FLT16_MANT_DIG__)
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

// Every pattern of the low half with many patterns of the high half: all around powers of two, and
// some of the others.
TEST(DType, HalvesOfAFloatJoinToTheSameBits) {
#ifdef __SANITIZE_ADDRESS__
  constexpr uint32_t step = 61;
#else
  constexpr uint32_t step = 13;
#endif
  for (uint32_t high = 0; high < 65536; high += (high & 0x7fu) < 2 || (high & 0x7fu) > 0x7d ? 1 : step)
    for (uint32_t low = 0; low < 65536; ++low) {
      uint32_t bits = (high << 16) | low;
      float x = std::bit_cast<float>(bits);
      SplitFloat s = split(x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(to_float(s.high)) && std::isnan(join(s.high, s.low))) << bits;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(join(s.high, s.low)), bits);
      // To nearest; where two are as near, to the one of larger magnitude.
      ASSERT_EQ(s.high.bits, low == 0x8000 ? (bits + 0x8000u) >> 16 : to_bfloat16(x).bits) << bits;
    }
}
