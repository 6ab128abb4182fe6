#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel scale_kernel();
Kernel embedding_kernel();
Kernel embedding_grad_kernel();
Kernel add_position_kernel();
Kernel position_grad_kernel();
Kernel take_row_kernel();
Kernel cross_entropy_kernel();
Kernel cross_entropy_grad_kernel();
Kernel cross_entropy_fused_kernel();
Kernel sum_loss_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::scale_kernel(),
      cuda::embedding_kernel(),
      cuda::embedding_grad_kernel(),
      cuda::add_position_kernel(),
      cuda::position_grad_kernel(),
      cuda::take_row_kernel(),
      cuda::cross_entropy_kernel(),
      cuda::cross_entropy_grad_kernel(),
      cuda::cross_entropy_fused_kernel(),
      cuda::sum_loss_kernel(),
  };
}

}  // namespace crest
