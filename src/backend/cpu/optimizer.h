#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel adamw_kernel();
Kernel sgd_kernel();
Kernel lion_kernel();
Kernel adamw_8bit_kernel();
Kernel factored_moments_kernel();
Kernel factored_update_kernel();
Kernel axpby_kernel();
Kernel sqrt_kernel();
Kernel unit_norm_kernel();
Kernel finish_step_kernel();

}  // namespace crest::cpu
