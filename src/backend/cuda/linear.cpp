// linear, linear_gelu, linear_dx, linear_dw: cuBLASLt, and our tiled kernel for what it does not take.
#include "backend/cuda/cublaslt.h"

namespace crest::cuda {

namespace {

void launch_linear_tiled(const KernelCall& c) { launch_tiled(c, linear_contraction(c.program, c.instr)); }

Kernel cublaslt(const char* op, const char* name) {
  return {op, name, reject_cublaslt, workspace_cublaslt, prepare_cublaslt, launch_cublaslt, tune_cublaslt};
}
Kernel tiled(const char* op, const char* name) {
  return {op, name, reject_tiled, nullptr, nullptr, launch_linear_tiled};
}

}  // namespace

Kernel linear_kernel() { return cublaslt("linear", "cuda.linear.cublaslt"); }
Kernel linear_gelu_kernel() { return cublaslt("linear_gelu", "cuda.linear_gelu.cublaslt"); }
Kernel linear_dx_kernel() { return cublaslt("linear_dx", "cuda.linear_dx.cublaslt"); }
Kernel linear_dw_kernel() { return cublaslt("linear_dw", "cuda.linear_dw.cublaslt"); }

Kernel linear_tiled_kernel() { return tiled("linear", "cuda.linear.tiled"); }
Kernel linear_gelu_tiled_kernel() { return tiled("linear_gelu", "cuda.linear_gelu.tiled"); }
Kernel linear_dx_tiled_kernel() { return tiled("linear_dx", "cuda.linear_dx.tiled"); }
Kernel linear_dw_tiled_kernel() { return tiled("linear_dw", "cuda.linear_dw.tiled"); }

}  // namespace crest::cuda
