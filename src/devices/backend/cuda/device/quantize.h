// Quantization to 8-bit floats inside of kernels: scales, conversion with counters, and eight
// numbers of a row.
#pragma once
#include <cfloat>

#include "backend/cuda/device/rows_copy.h"
#include "backend/cuda/device/rows_pack.h"
#include "core/float8.h"
#include "ops/fp8.h"

namespace crest::cuda {

__device__ inline bool is_magnitude(float amax) { return amax > 0.f && amax <= FLT_MAX; }

__device__ inline int exponent_for(bool e5m2, float amax, int margin) {
  if (!is_magnitude(amax)) return 0;
  return e5m2 ? scale_exponent<float8_e5m2>(amax, margin) : scale_exponent<float8_e4m3>(amax, margin);
}

// The destination of a tensor and its scale.
struct Quantizer {
  uint8_t *rows = nullptr, *columns = nullptr;  // q and its transpose; either may be null
  const float* given_scale = nullptr;           // null: the next members
  const float* history = nullptr;               // the largest magnitude in the step before; 0: none is known
  int margin = 0;
  float *scale = nullptr, *record = nullptr;
  unsigned long long* counts = nullptr;

  __device__ bool wanted() const { return given_scale || history; }
  __device__ bool is_known() const { return given_scale || is_magnitude(*history); }
};

// The destination of a tensor with a scale for each block: 128 numbers of a row (in the transpose:
// 128 rows of a column), or squares.
struct BlockQuantizer {
  uint8_t *rows = nullptr, *columns = nullptr;  // q and its transpose; either may be null
  float *row_scales = nullptr, *column_scales = nullptr;
  Fp8ScalePlace row_place, column_place;
  int64_t row_blocks = 0, column_blocks = 0;  // of squares: in a row of scales, padding included
  unsigned long long* counts = nullptr;       // of rows

  __device__ bool wanted() const { return rows || columns; }
};

// Values read from a quantizer when a kernel begins; the same in all its threads.
struct Scaling {
  float inverse = 0;   // 1 / scale
  float recorded = 0;  // the largest magnitude recorded before
  bool records = false;

  Scaling() = default;
  __device__ Scaling(const Quantizer& q, bool e5m2) {
    if (q.given_scale) inverse = 1.f / *q.given_scale;
    if (!q.history) return;
    // Where nothing is known of the step before, another kernel has recorded this tensor's
    // magnitudes.
    const float before = *q.history;
    recorded = *static_cast<const volatile float*>(q.record);
    records = is_magnitude(before);
    inverse = power_of_two(-exponent_for(e5m2, records ? before : recorded, records ? q.margin : 0));
  }
};

__device__ inline float largest_code(bool e5m2) { return e5m2 ? largest_of<float8_e5m2>() : largest_of<float8_e4m3>(); }

// Two numbers at once where the hardware does it; NaN has no sign there.
__device__ inline uint32_t to_codes(bool e5m2, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t both;
  if (e5m2)
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  return both;
#else
  auto code = [&](float x) { return uint32_t(e5m2 ? to_float8<float8_e5m2>(x).bits : to_float8<float8_e4m3>(x).bits); };
  return code(low) | code(high) << 8;
#endif
}

// The larger magnitude of each half of two pairs of bf16; NaN has none, and is the result of NaN
// alone.
__device__ inline uint32_t larger_pair(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t most;
  asm("{ .reg .b32 x, y; abs.bf16x2 x, %1; abs.bf16x2 y, %2; max.bf16x2 %0, x, y; }" : "=r"(most) : "r"(a), "r"(b));
  return most;
#else
  auto larger = [](uint32_t x, uint32_t y) {
    x &= 0x7fffu, y &= 0x7fffu;
    return x > 0x7f80u ? y : y > 0x7f80u ? x : x > y ? x : y;
  };
  return larger(a, b) | larger(a >> 16, b >> 16) << 16;
#endif
}

// Two magnitudes as bf16, rounded up but not to infinity. Scales are the same as of the numbers
// themselves: the largest number of a format times a power of two is a bf16.
__device__ inline uint32_t magnitude_pair(float low, float high) {
  auto rounded_up = [](float x) {
    const uint32_t u = float_bits(x) & 0x7fffffffu;
    if (u > 0x7f800000u) return 0u;
    return u > 0x7f7f0000u && u < 0x7f800000u ? 0x7f7fu : (u + 0xffffu) >> 16;
  };
  return rounded_up(low) | rounded_up(high) << 16;
}
__device__ inline float low_magnitude(uint32_t pair) { return bits_float(pair << 16); }
__device__ inline float high_magnitude(uint32_t pair) { return bits_float(pair & 0xffff0000u); }

__device__ inline uint32_t largest_pair(const uint32_t (&pairs)[4]) {
  return larger_pair(larger_pair(pairs[0], pairs[1]), larger_pair(pairs[2], pairs[3]));
}

// NaN has no magnitude.
__device__ inline float largest_of_eight(const float (&x)[8]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) largest = fmaxf(largest, fmaxf(fabsf(x[i]), fabsf(x[i + 1])));
  return largest;
}

__device__ inline void eight_codes(const float (&x)[8], float inverse, bool e5m2, uint32_t (&codes)[2]) {
  codes[0] = codes[1] = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) codes[i / 4] |= to_codes(e5m2, x[i] * inverse, x[i + 1] * inverse) << (i % 4 * 8);
}

// A thread's statistics of a tensor.
struct Seen {
  float most = 0;
  unsigned saturated = 0, vanished = 0;

  // Eight numbers, as two words of codes.
  __device__ void quantize(const float (&x)[8], float inverse, bool e5m2, uint32_t (&codes)[2]) {
    const float largest = largest_of_eight(x);
    most = fmaxf(most, largest);
    quantize(x, inverse, e5m2, largest, codes);
  }
  // largest: no magnitude is above it.
  __device__ void quantize(const float (&x)[8], float inverse, bool e5m2, float largest, uint32_t (&codes)[2]) {
    eight_codes(x, inverse, e5m2, codes);
    if (largest * inverse > largest_code(e5m2)) {
#pragma unroll
      for (int i = 0; i < 8; ++i) saturated += fabsf(x[i] * inverse) > largest_code(e5m2);
    }
    // A byte without its sign carries into its high bit unless it is 0.
    constexpr uint32_t low = 0x7f7f7f7fu;
    unsigned zeros = 8u - unsigned(__popc(((codes[0] & low) + low) & ~low) + __popc(((codes[1] & low) + low) & ~low));
    if (zeros) {
#pragma unroll
      for (int i = 0; i < 8; ++i) zeros -= x[i] == 0.f;
      vanished += zeros;
    }
  }

  // Adds a warp's numbers to the tables, with all its threads. Magnitudes are ordered as their
  // bits; sums of whole numbers have no order.
  __device__ void leave(const Quantizer& q, const Scaling& scaling) {
    most = warp_max(most);
    // Other blocks may read a completed value as the scale.
    if (threadIdx.x % 32 == 0 && scaling.records && most > scaling.recorded) record(q);
    leave(q.counts);
  }
  __device__ void leave(unsigned long long* counts) {
    for (int d = 16; d > 0; d /= 2) {
      saturated += __shfl_xor_sync(0xffffffffu, saturated, d);
      vanished += __shfl_xor_sync(0xffffffffu, vanished, d);
    }
    if (threadIdx.x % 32) return;
    if (saturated) atomicAdd(counts, static_cast<unsigned long long>(saturated));
    if (vanished) atomicAdd(counts + 1, static_cast<unsigned long long>(vanished));
  }
  // By one thread.
  __device__ void record(const Quantizer& q) const {
    if (most > 0.f) atomicMax(reinterpret_cast<unsigned*>(q.record), float_bits(most));
  }
};

// Four words of four codes, transposed.
__device__ inline void transpose_codes(uint32_t (&w)[4]) {
  uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[0], w[1], 0x7362);
  uint32_t c = __byte_perm(w[2], w[3], 0x5140), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410), w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410), w[3] = __byte_perm(b, d, 0x7632);
}

// Eight numbers of a row: in whole vectors of 16 bytes, or one by one up to the row's end.
template <class T, bool Vectors>
struct Eight {
  static constexpr int packs = 8 / Pack<T>::size;
  Pack<T> pack[packs];
  __device__ void load(const T* row, int64_t column, int64_t width) {
    if (column < width)
#pragma unroll
      for (int i = 0; i < packs; ++i) pack[i] = load_pack(row + column + i * Pack<T>::size);
  }
  __device__ void widen_to(float (&x)[8]) const {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      float part[Pack<T>::size];
      pack[i].widen_to(part);
#pragma unroll
      for (int j = 0; j < Pack<T>::size; ++j) x[i * Pack<T>::size + j] = part[j];
    }
  }
  // Rounds x to T.
  __device__ void narrow_from(float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      float part[Pack<T>::size];
#pragma unroll
      for (int j = 0; j < Pack<T>::size; ++j) part[j] = x[i * Pack<T>::size + j];
      pack[i] = Pack<T>::narrowed(part);
    }
    widen_to(x);
  }
  __device__ void store(T* row, int64_t column, int64_t width) const {
    if (column < width)
#pragma unroll
      for (int i = 0; i < packs; ++i) store_pack(row + column + i * Pack<T>::size, pack[i]);
  }
  // Makes the compiler convert these numbers to floats again after this point. Otherwise it would
  // keep the floats, in twice the registers.
  __device__ void forget_floats() {
#ifdef __CUDACC__
#pragma unroll
    for (int i = 0; i < packs; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(pack[i].w[j]));
#endif
  }
  // Pairs with magnitudes compared by larger_pair.
  __device__ void magnitudes(uint32_t (&pairs)[4]) const {
    if constexpr (std::is_same_v<T, bfloat16>) {
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = pack[0].w[i];
    } else {
      float x[8];
      widen_to(x);
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = magnitude_pair(x[2 * i], x[2 * i + 1]);
    }
  }
};
template <class T>
struct Eight<T, false> {
  T number[8];
  __device__ void load(const T* row, int64_t column, int64_t width) {
    for (int i = 0; i < 8; ++i)
      if (column + i < width) number[i] = row[column + i];
  }
  __device__ void widen_to(float (&x)[8]) const {
    for (int i = 0; i < 8; ++i) x[i] = widen(number[i]);
  }
  __device__ void narrow_from(float (&x)[8]) {
    for (int i = 0; i < 8; ++i) number[i] = narrow<T>(x[i]);
    widen_to(x);
  }
  __device__ void store(T* row, int64_t column, int64_t width) const {
    for (int i = 0; i < 8; ++i)
      if (column + i < width) row[column + i] = number[i];
  }
  __device__ void forget_floats() {}
  __device__ void magnitudes(uint32_t (&pairs)[4]) const {
    for (int i = 0; i < 4; ++i) pairs[i] = magnitude_pair(widen(number[2 * i]), widen(number[2 * i + 1]));
  }
};

}  // namespace crest::cuda
