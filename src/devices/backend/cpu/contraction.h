// The kernels of contractions (docs/reference/ops.md), and their shared parts.
#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel linear_kernel();
Kernel linear_gelu_kernel();
Kernel linear_dx_kernel();
Kernel linear_dw_kernel();
Kernel matmul_kernel();

// a[i] = gelu(h[i]) (tanh form) for n elements of f32, bf16 or f16; a may be h.
void gelu(void* a, const void* h, DType dtype, int64_t n, int threads);

}  // namespace crest::cpu
