// Matrix products by cuBLASLt; gemm_tiled.cu runs the unsupported ones. matmul's batches on views
// are a loop of strided-batched calls.
#include "backend/cuda/cublaslt.h"

namespace crest::cuda {

static Kernel cublaslt(const char* op, const char* name) {
  return {op, name, reject_cublaslt, workspace_cublaslt, prepare_cublaslt, launch_cublaslt, tune_cublaslt};
}

Kernel linear_kernel() { return cublaslt("linear", "cuda.linear.cublaslt"); }
Kernel linear_gelu_kernel() { return cublaslt("linear_gelu", "cuda.linear_gelu.cublaslt"); }
Kernel linear_dx_kernel() { return cublaslt("linear_dx", "cuda.linear_dx.cublaslt"); }
Kernel linear_dw_kernel() { return cublaslt("linear_dw", "cuda.linear_dw.cublaslt"); }
Kernel linear_fp8_kernel() {
  return {"linear_fp8",       "cuda.linear_fp8.cublaslt", reject_cublaslt_fp8,
          workspace_cublaslt, prepare_cublaslt,           launch_cublaslt,
          tune_cublaslt};
}
// With fast accumulation: its own name, since it takes another time.
Kernel linear_fp8_fast_kernel() {
  return {"linear_fp8",
          "cuda.linear_fp8.cublaslt_fast",
          reject_cublaslt_fp8_fast,
          workspace_cublaslt,
          prepare_cublaslt,
          launch_cublaslt,
          tune_cublaslt};
}
Kernel matmul_kernel() { return cublaslt("matmul", "cuda.matmul.cublaslt"); }

}  // namespace crest::cuda
