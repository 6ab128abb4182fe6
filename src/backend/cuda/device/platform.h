// What kernels are written against: CUDA under nvcc, and otherwise a small emulation of it on the host, which lets the
// tests run every kernel of ours on a machine without a GPU. Kernels use only what both have: thread and block indices,
// __shared__, CREST_DYNAMIC_SHARED, barriers, warp shuffles and votes, integer and float atomics.
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
