#include "core/json_number.h"

#include <gtest/gtest.h>

using namespace crest;

TEST(JsonNumber, OnlyWholeNumbersWithinTheRange) {
  auto as = [](const char* text, auto like) { return whole_number<decltype(like)>(nlohmann::json::parse(text)); };
  EXPECT_EQ(as("257", uint32_t()), 257u);
  EXPECT_EQ(as("-1", int32_t()), -1);
  EXPECT_EQ(as("18446744073709551615", uint64_t()), UINT64_MAX);
  EXPECT_EQ(as("-9223372036854775808", int64_t()), INT64_MIN);
  for (const char* text : {"1e300", "-1e300", "2.5", "2.0", "4294967296", "-1", "18446744073709551616", "\"1\"", "true",
                           "null", "[1]", "{}"})
    EXPECT_EQ(as(text, uint32_t()), std::nullopt) << text;
  EXPECT_EQ(as("18446744073709551615", int64_t()), std::nullopt);
  EXPECT_EQ(as("2147483648", int32_t()), std::nullopt);
  EXPECT_EQ(as("-2147483649", int32_t()), std::nullopt);
}
