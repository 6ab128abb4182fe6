// What crest plan was asked, and its answers for one device.
#pragma once
#include <optional>
#include <string>

#include "cli/options.h"
#include "plan/plan_report.h"
#include "predict/step_time.h"

namespace crest {

struct PlanFlags {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string memory, use = "train", calibration, as_profile, explain, link;
  std::optional<int64_t> node_gpus;
  double tokens = 0, price = 0;
  std::optional<int64_t> beams;
  int blocks = 8;
  bool json = false;
  bool limit_given() const { return !memory.empty() || !device.memory_limit.empty(); }
};

// The source of the plan's time, and the time; or why there is none.
struct Prediction : StepTime {
  std::optional<Calibration> calibration;
  double power = 0;  // power limit of the devices by their data sheet, in watts; 0: unknown
};

PlanReport make_report(const PlanFlags& flags);
Prediction predict(const PlanFlags& flags, const PlanReport& report);

// --device A,B,...: one table instead of a plan.
int plan_devices(const PlanFlags& flags);

}  // namespace crest
