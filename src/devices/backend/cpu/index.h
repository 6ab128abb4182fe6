// The kernels of the CPU backend: fast ones first, the reference of every operation last.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest {
const std::vector<Kernel>& cpu_kernels();
}
