// Copies from global to shared memory alongside the instructions of the starting thread (PTX
// cp.async, sm_80 and newer), and a fast power of two.
#pragma once
#include <cstring>

#include "backend/cuda/device/platform.h"

namespace crest::cuda {

// 16 bytes between 16-byte aligned addresses. Seen by the thread itself after loss_copy_wait, by
// others after a barrier.
__device__ inline void loss_copy16(void* shared, const void* global) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#else
  std::memcpy(shared, global, 16);
#endif
}

// Ends a group of this thread's copies.
__device__ inline void loss_copy_commit() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int Pending>
__device__ inline void loss_copy_wait_for() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// Until at most `pending` of this thread's groups are under way (above 4: until 4 are).
__device__ inline void loss_copy_wait(int pending) {
  switch (pending) {
    case 0: return loss_copy_wait_for<0>();
    case 1: return loss_copy_wait_for<1>();
    case 2: return loss_copy_wait_for<2>();
    case 3: return loss_copy_wait_for<3>();
    default: return loss_copy_wait_for<4>();
  }
}

}  // namespace crest::cuda
