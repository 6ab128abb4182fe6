// The kernels of attention by unit, for the list of kernels, tests and studies.
#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel attention_kernel();       // float vectors
Kernel attention_grad_kernel();  // float vectors
Kernel attention_amx_kernel();
Kernel attention_grad_amx_kernel();
// The same arithmetic without the instructions, for tests on other machines; not in the list of kernels.
Kernel attention_emulated_kernel();
Kernel attention_grad_emulated_kernel();

}  // namespace crest::cpu
