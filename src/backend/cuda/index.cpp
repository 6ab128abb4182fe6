#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel adamw_kernel();
Kernel all_reduce_kernel();
Kernel bias_grad_kernel();
Kernel finish_step_kernel();
Kernel grad_norm_kernel();
Kernel scale_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::adamw_kernel(),       cuda::all_reduce_kernel(), cuda::bias_grad_kernel(),
      cuda::finish_step_kernel(), cuda::grad_norm_kernel(),  cuda::scale_kernel(),
  };
}

}  // namespace crest
