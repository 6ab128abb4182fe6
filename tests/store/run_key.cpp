// The keys of measurements: equal keys mean comparable measurements.
#include "store/new_record.h"

#include <gtest/gtest.h>

#include "device.h"
#include "plan/compile.h"

using namespace crest;

TEST(RunKey, AWindowIsAnotherModel) {
  const Device device = test::this_cpu(2);
  auto key = [&](int64_t window, int64_t full_layers) {
    Recipe r;
    r.model = load_model_config("nano");
    r.model.window = window;
    see_all_in_first(r.model, full_layers);
    return run_key(r, device, "step");
  };
  EXPECT_EQ(key(0, 0), key(0, 2)) << "layers without a window that no layer has";
  EXPECT_NE(key(0, 0), key(64, 0));
  EXPECT_NE(key(32, 0), key(64, 0));
  EXPECT_NE(key(64, 0), key(64, 2));
}

// Records older than the fp8 recipe compare with its default.
TEST(RunKey, TheRecipeOfFp8CountsWhereItIsNotTheDefault) {
  const Device device = test::this_cpu(2);
  auto key = [&](const char* precision, const char* recipe) {
    Recipe r;
    r.model = load_model_config("nano");
    r.precision = precision;
    if (recipe) r.pass_settings["fp8-recipe"] = recipe;
    return run_key(r, device, "step");
  };
  EXPECT_EQ(key("fp8", nullptr), key("fp8", "tensor"));
  EXPECT_NE(key("fp8", nullptr), key("fp8", "block"));
  EXPECT_EQ(key("bf16", nullptr), key("bf16", "block"));
}

// The key in a record of nano in fp8, made by commit 426fcbde (`crest bench --batch 1 --seq 32`).
TEST(RunKey, RecordsOfBeforeThereWereNewerSettingsMatch) {
  Device device = test::this_cpu(2);
  device.name = "AMD EPYC (2 threads, avx512_bf16)", device.isa = "avx512_bf16", device.native_bf16 = true;
  Recipe r;
  r.model = load_model_config("nano");
  r.precision = "fp8", r.batch = 1, r.seq = 32;
  EXPECT_EQ(run_key(resolve(r, device), device, "step"), "c32559467d37fc4b");
}
