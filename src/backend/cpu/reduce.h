#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel bias_grad_kernel();
Kernel sum_loss_kernel();
Kernel grad_norm_kernel();

}  // namespace crest::cpu
