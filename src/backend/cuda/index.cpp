#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel attention_cudnn_kernel();
Kernel attention_grad_cudnn_kernel();
Kernel scale_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::attention_cudnn_kernel(),
      cuda::attention_grad_cudnn_kernel(),
      cuda::scale_kernel(),
  };
}

}  // namespace crest
