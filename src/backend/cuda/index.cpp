#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel attention_cudnn_kernel();
Kernel attention_grad_cudnn_kernel();
Kernel cache_append_kernel();
Kernel cached_attention_kernel();
Kernel join_heads_kernel();
Kernel rope_kernel();
Kernel scale_kernel();
Kernel split_heads_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::attention_cudnn_kernel(), cuda::attention_grad_cudnn_kernel(),
      cuda::cache_append_kernel(),    cuda::cached_attention_kernel(),
      cuda::join_heads_kernel(),      cuda::rope_kernel(),
      cuda::scale_kernel(),           cuda::split_heads_kernel(),
  };
}

}  // namespace crest
