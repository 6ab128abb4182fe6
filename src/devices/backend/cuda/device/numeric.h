// Numbers in kernels: storage dtypes widened to float, 16-byte vectors, sums over warps and blocks.
#pragma once
#include "backend/cuda/device/platform.h"
#include "core/dtype.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace crest::cuda {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bfloat16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }
__device__ inline float widen(float16 x) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(x.bits));
#else
  return to_float(x);
#endif
}

// Rounds to nearest even.
template <class T>
__device__ inline T narrow(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<T, bfloat16>)
      return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
    else
      return {__half_as_ushort(__float2half_rn(x))};
#else
    if constexpr (std::is_same_v<T, bfloat16>)
      return to_bfloat16(x);
    else
      return to_float16(x);
#endif
  }
}

// N elements read or written at once: at most 16 bytes.
template <class T, int N = 16 / int(sizeof(T))>
struct alignas(sizeof(T) * N) Vec {
  T x[N];
  static constexpr int size = N;
};

template <int N, class T>
__device__ inline Vec<T, N> load_vec(const T* p) {
#ifndef __CUDACC__
  emulator::require_aligned(p, sizeof(Vec<T, N>));
#endif
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <class T, int N>
__device__ inline void store_vec(T* p, const Vec<T, N>& v) {
#ifndef __CUDACC__
  emulator::require_aligned(p, sizeof(Vec<T, N>));
#endif
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}

// N floats from and to elements of T in one vector; halves are rounded two at a time.
template <int N, class T>
__device__ inline void load_floats(const T* p, float (&x)[N]) {
  Vec<T, N> v = load_vec<N>(p);
  for (int i = 0; i < N; ++i) x[i] = widen(v.x[i]);
}
template <int N, class T>
__device__ inline void store_floats(T* p, const float (&x)[N]) {
  Vec<T, N> v;
#ifdef __CUDACC__
  constexpr bool pairs = sizeof(T) == 2 && N % 2 == 0;
#else
  constexpr bool pairs = false;
#endif
  if constexpr (!pairs) {
    for (int i = 0; i < N; ++i) v.x[i] = narrow<T>(x[i]);
  } else {
#ifdef __CUDACC__
    for (int i = 0; i < N; i += 2) {
      if constexpr (std::is_same_v<T, bfloat16>)
        *reinterpret_cast<__nv_bfloat162*>(&v.x[i]) = __floats2bfloat162_rn(x[i], x[i + 1]);
      else
        *reinterpret_cast<__half2*>(&v.x[i]) = __floats2half2_rn(x[i], x[i + 1]);
    }
#endif
  }
  store_vec(p, v);
}

__device__ inline float warp_sum(float x) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

// Sum over a block of Threads threads (a multiple of 32), bitwise identical in every thread. All
// threads must call it.
template <int Threads>
__device__ inline float block_sum(float x) {
  static_assert(Threads % 32 == 0 && Threads <= 1024);
  if constexpr (Threads == 32) return warp_sum(x);
  __shared__ float part[Threads / 32];
  x = warp_sum(x);
  __syncthreads();  // a sum before this one may still be read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < Threads / 32 ? part[threadIdx.x % 32] : 0.f;
  return warp_sum(x);
}
template <int Threads>
__device__ inline float block_max(float x) {
  static_assert(Threads % 32 == 0 && Threads <= 1024);
  if constexpr (Threads == 32) return warp_max(x);
  __shared__ float part[Threads / 32];
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < Threads / 32 ? part[threadIdx.x % 32] : -INFINITY;
  return warp_max(x);
}

}  // namespace crest::cuda
