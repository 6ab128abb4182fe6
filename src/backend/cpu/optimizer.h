#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel adamw_kernel();
Kernel finish_step_kernel();

}  // namespace crest::cpu
