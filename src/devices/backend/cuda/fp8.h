// Shared by cuBLASLt's fp8 products and Crest's own kernels.
#pragma once
#include <string>

#include "backend/backend.h"

namespace crest::cuda {

// Why no kernel computes a linear_fp8; empty if one does.
std::string reject_fp8_product(const KernelQuery& query);
// Crest's own kernel of linear_fp8: any size, without tensor cores.
void launch_fp8_tiled(const KernelCall& call);
// n bytes, small numbers in e4m3 and e5m2.
void launch_fp8_numbers(const KernelCall& call, void* x, int64_t n, uint32_t seed);

}  // namespace crest::cuda
