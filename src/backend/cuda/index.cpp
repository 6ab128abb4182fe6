#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel scale_kernel();
Kernel fused_nvrtc_kernel();
Kernel fused_interpreter_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::scale_kernel(),
      cuda::fused_nvrtc_kernel(),
      cuda::fused_interpreter_kernel(),
  };
}

}  // namespace crest
