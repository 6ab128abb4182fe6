#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel embedding_kernel();
Kernel embedding_grad_kernel();
Kernel add_position_kernel();
Kernel position_grad_kernel();
Kernel take_row_kernel();

}  // namespace crest::cpu
