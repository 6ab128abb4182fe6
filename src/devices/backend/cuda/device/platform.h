// Kernels are written against this: CUDA under nvcc, otherwise a small emulation on the host, so
// tests run every kernel of Crest on a machine without a GPU. Kernels use only features of both:
// thread and block indices, __shared__, CREST_DYNAMIC_SHARED, barriers, warp shuffles and votes,
// integer and float atomics.
#pragma once
#if defined(__CUDACC__) || CREST_HAVE_CUDA
#include <cuda_runtime.h>
// The dynamic shared memory of a block as an array of T, aligned to 128 bytes.
#define CREST_DYNAMIC_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char crest_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(crest_dynamic_shared)
#else
#include "backend/cuda/device/emulator.h"
#endif

namespace crest::cuda {

// The first statement of every kernel. Code before it may not touch global memory of other kernels
// and may not return (checked by tests/backend/launch_source.cpp). A kernel allowed to overlap by
// start_kernel() (backend/cuda/launch.h) begins while the one before it on the stream runs; here
// its threads wait until that one has completed and its writes are visible. So a completed kernel
// implies completion of all kernels before it on the stream: none completes before its own wait
// returned, and copies and kernels of libraries begin after the completion of their predecessors.
// Below 9.0 kernels do not overlap, and this does nothing.
__device__ __forceinline__ void wait_for_predecessors() {
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
#elif !defined(__CUDACC__) && !CREST_HAVE_CUDA
  emulator::count_wait();
#endif
}

}  // namespace crest::cuda
