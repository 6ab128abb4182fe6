// matmul: batches of products on views, with cuBLASLt as a loop of strided-batched calls, else our tiled kernel.
#include "backend/cuda/cublaslt.h"

namespace crest::cuda {

namespace {

void launch_matmul_tiled(const KernelCall& c) { launch_tiled(c, matmul_contraction(c.program, c.instr)); }

}  // namespace

Kernel matmul_kernel() {
  return {"matmul",         "cuda.matmul.cublaslt", reject_cublaslt, workspace_cublaslt,
          prepare_cublaslt, launch_cublaslt,        tune_cublaslt};
}
Kernel matmul_tiled_kernel() {
  return {"matmul", "cuda.matmul.tiled", reject_tiled, nullptr, nullptr, launch_matmul_tiled};
}

}  // namespace crest::cuda
