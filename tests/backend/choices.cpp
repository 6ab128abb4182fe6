// Choices of kernels: earlier ones are found, differences are reported.
#include "backend/choices.h"

#include <gtest/gtest.h>

#include "contains.h"
#include "core/error.h"

namespace crest {
namespace {

using crest::test::contains;

const std::string h200 = "NVIDIA H200, cuBLASLt 130100", a100 = "NVIDIA A100-SXM4-80GB, cuBLASLt 130100";
const Choices::Table earlier = {{h200, {{"64x64x64", "gelu 0102"}, {"8x8x8", "plain 00"}}}};

TEST(Choices, EarlierOnesAreFoundForTheSameProblemDeviceAndLibraryOnly) {
  Choices c(earlier);
  EXPECT_EQ(c.find(h200, "64x64x64"), "gelu 0102");
  EXPECT_EQ(c.find(h200, "64x64x65"), std::nullopt);
  EXPECT_EQ(c.find(a100, "64x64x64"), std::nullopt);
  EXPECT_EQ(c.find("NVIDIA H200, cuBLASLt 130200", "64x64x64"), std::nullopt);
  EXPECT_TRUE(c.used().empty()) << "what was only offered is not used";
  EXPECT_EQ(Choices().find(h200, "64x64x64"), std::nullopt);
}

TEST(Choices, WhatTheSessionUsesComesFirst) {
  Choices c(earlier);
  c.use(h200, "64x64x64", "plain 03");  // the library did not take the earlier one
  EXPECT_EQ(c.find(h200, "64x64x64"), "plain 03");
  EXPECT_EQ(c.used(), (Choices::Table{{h200, {{"64x64x64", "plain 03"}}}}));
}

TEST(Choices, ADifferenceIsToldAndNothingElse) {
  EXPECT_EQ(Choices().difference(), "") << "a CPU chooses nothing";

  Choices same(earlier);
  same.use(h200, "8x8x8", "plain 00");
  EXPECT_EQ(same.difference(), "") << "fewer problems are no difference";

  Choices other(earlier);
  other.use(h200, "8x8x8", "plain 01"), other.use(h200, "64x64x64", "gelu 0102"), other.use(h200, "9x9x9", "plain 00");
  EXPECT_TRUE(contains(other.difference(), "2 of 3")) << other.difference();

  Choices foreign(earlier);
  foreign.use(a100, "8x8x8", "plain 00");
  EXPECT_TRUE(contains(foreign.difference(), h200) && contains(foreign.difference(), a100)) << foreign.difference();

  Choices fresh;
  fresh.use(h200, "8x8x8", "plain 00");
  EXPECT_TRUE(contains(fresh.difference(), "no kernel choices")) << fresh.difference();

  EXPECT_TRUE(contains(Choices(earlier).difference(), h200)) << "now on a CPU, or with --deterministic";
}

TEST(Choices, AsText) {
  EXPECT_EQ(parse_choices(to_json(earlier), "here"), earlier);
  EXPECT_EQ(parse_choices(to_json({}), "here"), Choices::Table{});
  for (const char* bad : {"", "{", "[]", "{}", R"({"format": 1})", R"({"format": 2, "choices": {}})",
                          R"({"format": 1, "choices": {"a": {"b": 3}}})", R"({"format": 1, "choices": [1]})"}) {
    SCOPED_TRACE(bad);
    EXPECT_THROW(parse_choices(bad, "here"), Error);
  }
}

}  // namespace
}  // namespace crest
