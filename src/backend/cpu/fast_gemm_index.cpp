// The fast kernels of contractions, loss, embedding and update, one line each.
#include <vector>

#include "backend/cpu/cast.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/cross_entropy.h"
#include "backend/cpu/embedding.h"
#include "backend/cpu/fast_gemm_index.h"
#include "backend/cpu/optimizer.h"
#include "backend/cpu/reduce.h"

namespace crest::cpu {

std::vector<Kernel> cpu_gemm_kernels() {
  return {
      linear_kernel(),
      linear_gelu_kernel(),
      linear_dx_kernel(),
      linear_dw_kernel(),
      matmul_kernel(),
      bias_grad_kernel(),
      cross_entropy_kernel(),
      cross_entropy_grad_kernel(),
      cross_entropy_fused_kernel(),
      sum_loss_kernel(),
      grad_norm_kernel(),
      adamw_kernel(),
      finish_step_kernel(),
      embedding_kernel(),
      embedding_grad_kernel(),
      add_position_kernel(),
      position_grad_kernel(),
      take_row_kernel(),
      cast_kernel(),
  };
}

}  // namespace crest::cpu
