#include "backend/device_json.h"

#include <nlohmann/json.hpp>

namespace crest {

nlohmann::ordered_json device_to_json(const Device& d) {
  return {{"kind", d.kind},          {"index", d.index}, {"name", d.name},
          {"threads", d.threads},    {"isa", d.isa},     {"native_bf16", d.native_bf16},
          {"memory_bytes", d.memory}};
}

}  // namespace crest
