#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel linear_kernel();
Kernel linear_tiled_kernel();
Kernel linear_gelu_kernel();
Kernel linear_gelu_tiled_kernel();
Kernel linear_dx_kernel();
Kernel linear_dx_tiled_kernel();
Kernel linear_dw_kernel();
Kernel linear_dw_tiled_kernel();
Kernel matmul_kernel();
Kernel matmul_tiled_kernel();
Kernel scale_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  return {
      cuda::linear_kernel(),      cuda::linear_tiled_kernel(),
      cuda::linear_gelu_kernel(), cuda::linear_gelu_tiled_kernel(),
      cuda::linear_dx_kernel(),   cuda::linear_dx_tiled_kernel(),
      cuda::linear_dw_kernel(),   cuda::linear_dw_tiled_kernel(),
      cuda::matmul_kernel(),      cuda::matmul_tiled_kernel(),
      cuda::scale_kernel(),
  };
}

}  // namespace crest
