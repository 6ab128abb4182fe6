// N numbers as the 32-bit words they are loaded in. Halves stay packed until they are needed: a
// load in flight costs one register a word, and nothing waits for it before it is widened (elements
// of 16 bits are taken apart at the load).
#pragma once
#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

template <class T, int N>
struct alignas(sizeof(T) * N) Words {
  static_assert(sizeof(T) * N % 4 == 0);
  uint32_t w[sizeof(T) * N / 4];

  // Element i as a float; i is known at compile time once loops are unrolled.
  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(w[i]);
    else if constexpr (std::is_same_v<T, bfloat16>)
      return __uint_as_float(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
    else
      return widen(T{uint16_t(i % 2 ? w[i / 2] >> 16 : w[i / 2])});
  }
};
// One half has no word to share.
template <class T>
requires(sizeof(T) == 2) struct Words<T, 1> {
  T x;
  __device__ float operator[](int) const { return widen(x); }
};

// Words of zeros are zeros in every dtype: Words<T, N>() for missing values.
template <int N, class T>
__device__ inline Words<T, N> load_words(const T* p) {
#ifndef __CUDACC__
  emulator::require_aligned(p, sizeof(Words<T, N>));
#endif
  return *reinterpret_cast<const Words<T, N>*>(p);
}

}  // namespace crest::cuda
