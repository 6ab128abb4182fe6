#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest::cpu {

// The fast CPU kernels of contractions, loss, embedding and update (docs/ops.md).
std::vector<Kernel> cpu_gemm_kernels();

}  // namespace crest::cpu
