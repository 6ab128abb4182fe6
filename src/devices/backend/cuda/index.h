// The kernels of the CUDA backend: best first
// within an operation, the general one last.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest {
const std::vector<Kernel>& cuda_kernels();
}
