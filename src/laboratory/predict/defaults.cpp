#include "predict/defaults.h"

#include <optional>
#include <set>

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

Recipe with_defaults(Recipe recipe, const Device& device, int64_t limit, const std::string& device_name, bool quiet) {
  DefaultSources from;
  from.limit = limit;
  from.timer_of = [&](auto& plain, auto& on) { return predicted_step_times(plain, on, device_name); };
  // A grid of measurements makes the same choice many times.
  static std::set<std::string> said;
  if (!quiet) from.note = [](auto& line) { said.insert(line).second ? to_stderr("{}\n", line) : void(); };
  return with_defaults(std::move(recipe), device, from);
}

}  // namespace crest
