// The reference kernels of the CPU: simple loops in double, the last choice and the oracle of every
// other kernel.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest {

std::vector<Kernel> cpu_reference_kernels();

}  // namespace crest
