// The kernels of all backends.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"

namespace crest {

// The kernels of a backend ("cpu"), in order of preference within an operation.
const std::vector<Kernel>& kernels_of(const std::string& backend);

}  // namespace crest
