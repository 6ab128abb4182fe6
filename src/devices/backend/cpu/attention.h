// The kernels of attention by unit, for the list of kernels, tests and studies.
#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel attention_kernel();       // float vectors
Kernel attention_grad_kernel();  // float vectors
Kernel attention_rows_kernel();
Kernel attention_rows_grad_kernel();
// Matrix units; emulated (tests) on machines without the instructions.
Kernel attention_amx_kernel();
Kernel attention_grad_amx_kernel();
Kernel attention_rows_amx_kernel();
Kernel attention_rows_grad_amx_kernel();

struct AttentionArgs;
// Floats of a thread's scratch of attention on vectors, on a device of any class.
int64_t attention_forward_scratch(const Device&, const AttentionArgs&);

}  // namespace crest::cpu
