#include "store/noise_floor.h"

namespace crest {

std::optional<NoiseFloor> noise_floor_of(const Store& store, const std::string& key, const std::string& device) {
  RunFilter filter;
  filter.key = key;
  for (auto& run : store.list(filter)) {
    if (run.status != "done" || !run.result.is_object() || !run.device.is_object()) continue;
    if (text_at(run.device, "name") != device) continue;
    auto floor = run.result.find("noise_floor");
    if (floor != run.result.end() && floor->is_number()) return NoiseFloor{floor->get<double>(), run.id, run.started};
  }
  return std::nullopt;
}

}  // namespace crest
