#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel scale_kernel();
Kernel norm_kernel();
Kernel add_norm_kernel();
Kernel norm_grad_kernel();
Kernel softmax_kernel();
Kernel softmax_grad_kernel();
Kernel causal_mask_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::scale_kernel(),   cuda::norm_kernel(),         cuda::add_norm_kernel(),    cuda::norm_grad_kernel(),
      cuda::softmax_kernel(), cuda::softmax_grad_kernel(), cuda::causal_mask_kernel(),
  };
}

}  // namespace crest
