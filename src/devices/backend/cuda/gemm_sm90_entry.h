// Crest's GEMMs for compute capability 9.0 as kernels of instructions (gemm_sm90.cu).
#pragma once
#include "backend/backend.h"

namespace crest::cuda {

// linear, linear_gelu with a bias, linear_swiglu, linear_dx, linear_dx_sum, linear_dx_gelu_grad,
// linear_dx_swiglu_grad, linear_dw. Workspace: gemm_sm90_workspace.
std::string reject_gemm_sm90(const KernelQuery& query);
size_t gemm_sm90_workspace(const KernelQuery& query);
void launch_gemm_sm90(const KernelCall& call);
// Rows and columns of the result computed by a block of these kernels at a time; whether blocks
// also divide the sum.
struct GemmTile {
  int rows, columns;
  bool divides_sum;
};
GemmTile gemm_sm90_tile(const Instr& instr);

}  // namespace crest::cuda
