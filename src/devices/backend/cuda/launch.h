// Starting Crest's own kernels on a CUDA stream.
#pragma once
#include <utility>

#include "backend/cuda/device/platform.h"

namespace crest::cuda {

// The start of a kernel. overlap: it may begin while the kernel before it
// on the stream runs (programmatic dependent launch, for devices of
// compute capability 9.0 and newer). Before it must be a kernel on the
// same stream: not another stream's event, unknown to a kernel's own wait.
struct LaunchOn {
  void* stream = nullptr;  // a cudaStream_t
  bool overlap = false;
};

#if CREST_HAVE_CUDA
// Whether the current device's code of a kernel (a function or a cudaKernel_t) has the wait of
// wait_for_predecessors(): not where it was compiled from the PTX of an older device. Without it an
// overlap would be a race.
bool waits_for_predecessors(const void* kernel);

// The launch's attributes; refers to *attribute, valid until the launch.
inline cudaLaunchConfig_t launch_config(const LaunchOn& on, const void* kernel, dim3 grid, dim3 block, size_t shared,
                                        cudaLaunchAttribute* attribute) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(on.stream);
  if (on.overlap && waits_for_predecessors(kernel)) {
    *attribute = {};
    attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute->val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute, config.numAttrs = 1;
  }
  return config;
}
#endif

#if defined(__CUDACC__)
// Starts kernel<<<grid, block, shared, stream>>>(args...). More than 48 KiB of shared memory must
// be requested, including the kernel's declarations and the additions of compute-sanitizer.
template <class... P, class... A>
cudaError_t start_kernel(const LaunchOn& on, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A&&... args) {
  auto* address = reinterpret_cast<const void*>(kernel);
  if (shared > 32 * 1024)
    if (cudaError_t code = cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
        code != cudaSuccess)
      return code;
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = launch_config(on, address, grid, block, shared, &attribute);
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...);
}
#endif

}  // namespace crest::cuda
