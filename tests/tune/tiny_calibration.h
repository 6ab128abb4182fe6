// A calibration of one thread of this machine, made once a process. The steps of crest calibrate
// take minutes; these are tiny, and the limits of the device are invented.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "device/find.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "tune/calibrate.h"

namespace crest::test {

inline const Calibration& tiny_calibration() {
  static const Calibration made = [] {
    Device device = find_device("cpu", 1);
    std::vector<CalibrationStep> steps;
    for (auto [batch, seq] : {std::pair{"1", "16"}, {"4", "16"}, {"2", "96"}, {"8", "64"}}) {
      Recipe r;
      settings_of(r).apply(
          {{"model", {"nano"}}, {"vocab", {"256"}}, {"batch", {batch}}, {"seq", {seq}}, {"precision", {"fp32"}}});
      steps.push_back({"tiny", resolve(r, device)});
    }
    StepMeasure how{.max_seconds = 0.05, .rates = {{"fp32", 5e10, "given"}, {"bandwidth", 1e10, "given"}}};
    Calibration c = calibrate(device, int64_t(1) << 30, steps, how, [](size_t, auto&) {});
    EXPECT_EQ(c.times.errors().size(), steps.size());
    return c;
  }();
  return made;
}

}  // namespace crest::test
