// A device as JSON, as commands print it and records store it. docs/reference/contract.md lists the
// keys.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "backend/backend.h"

namespace crest {

nlohmann::ordered_json device_to_json(const Device& device);

}  // namespace crest
