// The steps measured by a calibration, and their stated source.
#include "tune/calibrate.h"

#include <gtest/gtest.h>

#include "device/find.h"
#include "tune/tiny_calibration.h"

namespace crest::test {

TEST(Calibrate, MeasuresEachPrecisionOnce) {
  Device device = find_device("cpu", 1);
  auto count = [&](const std::vector<std::string>& precisions) {
    return calibration_steps(device, int64_t(1) << 40, precisions).size();
  };
  EXPECT_EQ(count({"fp32", "fp32"}), count({"fp32"}));
  EXPECT_EQ(count({"auto", "fp32"}), count({}));
  EXPECT_EQ(count({"fp32", "fp16"}), 2 * count({"fp32"}));
}

// --add: earlier measurements keep their device and day.
TEST(Calibrate, AddsStepsAsThoseOfThisDevice) {
  Device device = find_device("cpu", 1);
  Calibration before = tiny_calibration();
  ASSERT_EQ(before.sources.size(), 1u);
  before.sources[0].device = "another CPU", before.sources[0].date = "2026-01-31T12:00:00.000Z";
  before.sources[0].built_in = true;
  Recipe r;
  settings_of(r).apply(
      {{"model", {"nano"}}, {"vocab", {"256"}}, {"batch", {"3"}}, {"seq", {"32"}}, {"precision", {"fp32"}}});
  const StepMeasure how{.max_seconds = 0.05, .rates = before.times.rates()};
  const Calibration after = calibrate(
      device, int64_t(1) << 30, {{"tiny", resolve(r, device)}}, how, [](size_t, auto&) {}, before);
  ASSERT_EQ(after.sources.size(), 2u);
  EXPECT_EQ(after.sources[0].steps, before.times.steps());
  EXPECT_EQ(after.sources[0].device, "another CPU");
  EXPECT_EQ(after.sources[0].date, before.sources[0].date);
  EXPECT_TRUE(after.sources[0].built_in);
  EXPECT_EQ(after.sources[1].steps, 1u);
  EXPECT_EQ(after.sources[1].device, device.name);
  EXPECT_GT(after.sources[1].date, before.sources[0].date);
  EXPECT_FALSE(after.sources[1].built_in);
  EXPECT_EQ(after.times.steps(), before.times.steps() + 1);
}

}  // namespace crest::test
