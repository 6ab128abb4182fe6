#include "predict/recompute_budget.h"

#include <optional>

#include "core/to_stderr.h"
#include "device/data_sheet.h"
#include "predict/floor_time.h"
#include "predict/planned_time.h"

namespace crest {

StepTimer predicted_step_times(const CompiledSession& plain, const Device& device, const std::string& device_name) {
  std::optional<Calibration> calibration = find_calibration("", device);
  if (calibration && planned_time(plain, *calibration).known())
    return {.ms = [c = std::move(*calibration)](auto& session) { return planned_time(session, c).ms; },
            .source = "predicted from the calibration",
            .absolute = true};
  std::optional<DataSheet> sheet;
  if (device.described) sheet = sheet_of(device, device_name);
  if (!sheet) return assumed_step_times(plain, device);
  return {.ms = [s = std::move(*sheet)](auto& session) { return floor_time(session, s).ms; },
          .source = "predicted from the data sheet",
          .absolute = true};
}

Recipe within_budget(Recipe recipe, const Device& device, const std::string& device_name, bool quiet) {
  auto times = [&](auto& plain, auto& on) { return predicted_step_times(plain, on, device_name); };
  std::function<void(const std::string&)> note = [](auto& line) { to_stderr("{}\n", line); };
  if (quiet) note = {};
  return recompute_within_budget(std::move(recipe), device, times, note);
}

}  // namespace crest
