// The fast kernels of contractions, loss, embedding and update, one line each.
#include <vector>

#include "backend/cpu/cast.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/cross_entropy.h"
#include "backend/cpu/fast_gemm_index.h"
#include "backend/cpu/optimizer.h"

namespace crest::cpu {

std::vector<Kernel> cpu_gemm_kernels() {
  return {
      linear_kernel(),
      linear_gelu_kernel(),
      linear_dx_kernel(),
      linear_dw_kernel(),
      cross_entropy_kernel(),
      cross_entropy_grad_kernel(),
      cross_entropy_fused_kernel(),
      adamw_kernel(),
      finish_step_kernel(),
      cast_kernel(),
  };
}

}  // namespace crest::cpu
