// What makes two measurements comparable: their keys.
#include "bench/new_record.h"

#include <gtest/gtest.h>

#include "device.h"

using namespace crest;

TEST(RunKey, AWindowIsAnotherModel) {
  const Device device = test::this_cpu(2);
  auto key = [&](int64_t window, int64_t full_layers) {
    Recipe r;
    r.model = load_model_config("nano");
    r.model.window = window, r.model.full_layers = full_layers;
    return run_key(r, device, "step");
  };
  EXPECT_EQ(key(0, 0), key(0, 2)) << "layers without a window that no layer has";
  EXPECT_NE(key(0, 0), key(64, 0));
  EXPECT_NE(key(32, 0), key(64, 0));
  EXPECT_NE(key(64, 0), key(64, 2));
}

// Records of before there was a recipe of fp8 compare with those of its default.
TEST(RunKey, TheRecipeOfFp8CountsWhereItIsNotTheDefault) {
  const Device device = test::this_cpu(2);
  auto key = [&](const char* precision, const char* recipe) {
    Recipe r;
    r.model = load_model_config("nano");
    r.precision = precision;
    if (recipe) r.levers["fp8-recipe"] = recipe;
    return run_key(r, device, "step");
  };
  EXPECT_EQ(key("fp8", nullptr), key("fp8", "tensor"));
  EXPECT_NE(key("fp8", nullptr), key("fp8", "block"));
  EXPECT_EQ(key("bf16", nullptr), key("bf16", "block"));
}
