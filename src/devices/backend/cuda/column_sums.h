// Sums over the rows of partial sums, as the last step of a bias gradient (bias_grad.cu).
#pragma once
#include "backend/backend.h"

namespace crest::cuda {

// out[n] (+ acc[n], null: 0), both of `type`, of partial[rows, n]; n is a multiple of 4. In a fixed
// order.
void launch_column_sums(const KernelCall& call, const float* partial, int64_t rows, int64_t n, DType type,
                        const void* acc, void* out);

}  // namespace crest::cuda
