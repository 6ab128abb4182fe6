// Asynchronous copies of 16 bytes from global to shared memory (cp.async of sm_80 and newer). A
// thread sees its own copies once wait_copies says so; for other threads' copies a barrier must
// follow.
#pragma once
#include "backend/cuda/device/platform.h"

namespace crest::cuda {

// Starts a copy; both addresses are multiples of 16.
__device__ inline void copy_async(void* shared, const void* global) {
#ifdef __CUDACC__
  unsigned to = unsigned(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
  *static_cast<int4*>(shared) = *static_cast<const int4*>(global);
#endif
}
// Ends a group of copies; an empty group counts too.
__device__ inline void commit_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `Pending` groups of this thread are under way.
template <int Pending>
__device__ inline void wait_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace crest::cuda
