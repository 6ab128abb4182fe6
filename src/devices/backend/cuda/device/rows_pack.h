// 16 bytes of storage numbers, as the four words of the load. Kept as words, an early load costs
// four registers and nothing waits for it before widening (16-bit elements would be taken apart at
// the load).
#pragma once
#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

// The two numbers of a word, the first in the low half; and back, rounded to nearest even.
template <class T>
__device__ inline void unpack_pair(uint32_t w, float& low, float& high) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    low = __uint_as_float(w << 16), high = __uint_as_float(w & 0xffff0000u);
  } else {
#ifdef __CUDACC__
    float2 f = __half22float2(__halves2half2(__ushort_as_half(uint16_t(w)), __ushort_as_half(uint16_t(w >> 16))));
    low = f.x, high = f.y;
#else
    low = widen(T{uint16_t(w)}), high = widen(T{uint16_t(w >> 16)});
#endif
  }
}
template <class T>
__device__ inline uint32_t pack_pair(float low, float high) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, bfloat16>) {
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);  // one instruction for both
    return uint32_t(__bfloat16_as_ushort(p.x)) | uint32_t(__bfloat16_as_ushort(p.y)) << 16;
  } else {
    __half2 p = __floats2half2_rn(low, high);
    return uint32_t(__half_as_ushort(p.x)) | uint32_t(__half_as_ushort(p.y)) << 16;
  }
#else
  return uint32_t(narrow<T>(low).bits) | uint32_t(narrow<T>(high).bits) << 16;
#endif
}

template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / int(sizeof(T));
  uint32_t w[4];

  __device__ void widen_to(float (&x)[size]) const {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(w[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) unpack_pair<T>(w[i], x[2 * i], x[2 * i + 1]);
    }
  }
  __device__ static Pack narrowed(const float (&x)[size]) {
    Pack p;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p.w[i] = __float_as_uint(x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) p.w[i] = pack_pair<T>(x[2 * i], x[2 * i + 1]);
    }
    return p;
  }
};

template <class T>
__device__ inline Pack<T> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T>*>(p);
}
// All of them x.
template <class T>
__device__ inline Pack<T> pack_of(float x) {
  float all[Pack<T>::size];
  for (float& one : all) one = x;
  return Pack<T>::narrowed(all);
}
// Of a row of factors; 1 where there is none.
template <class T>
__device__ inline float weight_at(const T* weights, int column) {
  return weights ? widen(weights[column]) : 1.f;
}
template <class T>
__device__ inline void store_pack(T* p, const Pack<T>& v) {
  *reinterpret_cast<Pack<T>*>(p) = v;
}

}  // namespace crest::cuda
