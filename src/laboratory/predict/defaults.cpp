#include "predict/defaults.h"

#include <optional>
#include <set>

#include "core/to_stderr.h"
#include "device/data_sheet.h"
#include "predict/floor_time.h"
#include "predict/pipeline_time.h"
#include "predict/planned_time.h"
#include "predict/step_time.h"

namespace crest {

static StepTime of_time(PlannedTime time) {
  StepTime t;
  t.time = std::move(time);
  return t;
}
static StepTime of_time(FloorTime time) {
  StepTime t;
  t.floors = std::move(time);
  return t;
}

static double step_ms(const CompiledSession& session, const StagePredictor& of_stage,
                      const std::vector<const CompiledSession*>& compiled) {
  return pipeline_step_time(session, of_stage, compiled).step()->ms;
}

StepTimer predicted_step_times(const CompiledSession& plain, const Device& device, const std::string& device_name) {
  std::optional<Calibration> calibration = find_calibration("", device);
  std::optional<DataSheet> sheet;  // also of the link to the host
  if (device.described) sheet = sheet_of(device, device_name);
  if (calibration && planned_time(plain, *calibration).known())
    return {.ms =
                [c = std::move(*calibration), sheet](auto& session, auto& compiled) {
                  return step_ms(
                      session, [&](auto& s) { return of_time(planned_time(s, c, sheet ? &*sheet : nullptr)); },
                      compiled);
                },
            .source = "predicted from the calibration",
            .absolute = true};
  if (!sheet) return assumed_step_times(plain, device);
  return {.ms =
              [sheet = std::move(*sheet)](auto& session, auto& compiled) {
                return step_ms(
                    session, [&](auto& s) { return of_time(floor_time(s, sheet)); }, compiled);
              },
          .source = "predicted from the data sheet",
          .absolute = true};
}

StageCostsOf predicted_costs_of_stages(const std::string& device_name) {
  return [device_name](const Recipe& recipe, const Device& device) {
    const std::optional<Calibration> calibration = find_calibration("", device);
    std::optional<DataSheet> given;
    if (!device_name.empty()) given = sheet_of(device, device_name);
    const DataSheet* sheet = given ? &*given : data_sheet_of(device.name);
    return stage_costs(recipe, device, calibration ? &*calibration : nullptr, sheet);
  };
}

Recipe with_defaults(Recipe recipe, const Device& device, int64_t limit, const std::string& device_name, bool quiet) {
  DefaultSources from;
  from.limit = limit;
  from.timer_of = [&](auto& plain, auto& on) { return predicted_step_times(plain, on, device_name); };
  from.stage_costs_of = predicted_costs_of_stages(device_name);
  // A grid of measurements makes the same choice many times.
  static std::set<std::string> said;
  if (!quiet) from.note = [](auto& line) { said.insert(line).second ? to_stderr("{}\n", line) : void(); };
  return with_defaults(std::move(recipe), device, from);
}

}  // namespace crest
