#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel cross_entropy_kernel();
Kernel cross_entropy_grad_kernel();
Kernel cross_entropy_fused_kernel();

}  // namespace crest::cpu
