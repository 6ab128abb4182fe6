// The parts of a fused kernel's source independent of its body; fused_source.cpp puts them
// together.
#pragma once

namespace crest::cuda {

// The runtime compiler has no headers, so conversions are written as instructions (PTX ISA, cvt).
inline constexpr const char* device_primitives = R"(// Written by Crest.
__device__ __forceinline__ void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float f16_to_float(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
__device__ inline unsigned short float_to_f16(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ inline unsigned short float_to_bf16(float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ inline unsigned floats_to_f16(float low, float high) {
  unsigned y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ inline unsigned floats_to_bf16(float low, float high) {
  unsigned y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
)";

inline constexpr const char* memory_access = R"(
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline float widen(f16 x) { return f16_to_float(x.bits); }
__device__ inline void narrow(float& y, float x) { y = x; }
__device__ inline void narrow(bf16& y, float x) { y.bits = float_to_bf16(x); }
__device__ inline void narrow(f16& y, float x) { y.bits = float_to_f16(x); }
__device__ inline void unpack(bf16, unsigned word, float& low, float& high) {
  low = __uint_as_float(word << 16);
  high = __uint_as_float(word & 0xffff0000u);
}
__device__ inline void unpack(f16, unsigned word, float& low, float& high) {
  low = f16_to_float((unsigned short)word);
  high = f16_to_float((unsigned short)(word >> 16));
}
__device__ inline unsigned pack(bf16, float low, float high) { return floats_to_bf16(low, high); }
__device__ inline unsigned pack(f16, float low, float high) { return floats_to_f16(low, high); }

template <int N> struct alignas(4 * N) Words { unsigned x[N]; };

template <int N> __device__ __forceinline__ void load(float (&v)[N], const float* p) {
  const Words<N> w = *(const Words<N>*)p;
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = __uint_as_float(w.x[k]);
}
template <int N, class T> __device__ __forceinline__ void load(float (&v)[N], const T* p) {
  if constexpr (N == 1) {
    v[0] = widen(*p);
  } else {
    const Words<N / 2> w = *(const Words<N / 2>*)p;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) unpack(T(), w.x[k], v[2 * k], v[2 * k + 1]);
  }
}
template <int N> __device__ __forceinline__ void store(float* p, const float (&v)[N]) {
  Words<N> w;
#pragma unroll
  for (int k = 0; k < N; ++k) w.x[k] = __float_as_uint(v[k]);
  *(Words<N>*)p = w;
}
template <int N, class T> __device__ __forceinline__ void store(T* p, const float (&v)[N]) {
  if constexpr (N == 1) {
    narrow(*p, v[0]);
  } else {
    Words<N / 2> w;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) w.x[k] = pack(T(), v[2 * k], v[2 * k + 1]);
    *(Words<N / 2>*)p = w;
  }
}

)";

// All vectors of a thread are loaded before the first is stored: outputs may lie on inputs, so the
// compiler could not move the loads up itself.
inline constexpr const char* flat_frame = R"(
template <int N, int U> __device__ __forceinline__ void elements(const Pointers& p, long long n) {
  const long long vectors = n / N, first = (long long)blockIdx.x * (block_threads * U) + threadIdx.x;
  float none[1][N];
  if (first + block_threads * (U - 1) < vectors) {
    Inputs<N> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u) in[u].load_from(p, (first + block_threads * u) * N);
#pragma unroll
    for (int u = 0; u < U; ++u) in[u].finish(p, (first + block_threads * u) * N, none);
  } else {
#pragma unroll 1
    for (long long v = first; v < vectors; v += block_threads) {
      Inputs<N> in;
      in.load_from(p, v * N);
      in.finish(p, v * N, none);
    }
  }
  if (N > 1 && blockIdx.x == gridDim.x - 1 && threadIdx.x < n - vectors * N) {
    Inputs<1> in;
    float none[1][1];
    in.load_from(p, vectors * N + threadIdx.x);
    in.finish(p, vectors * N + threadIdx.x, none);
  }
}
)";

inline constexpr const char* flat_kernel = R"(
extern "C" __global__ void __launch_bounds__(block_threads, resident_blocks) {0}(const Pointers p, long long n) {{
  wait_for_predecessors();
  elements<{1}, {2}>(p, n);
}}
)";

// The rows of a slab are summed per thread, then over the threads of a column from top to bottom.
inline constexpr const char* column_frame = R"(
template <int N, int U>
__device__ __forceinline__ void rows_of_columns(const Pointers& p, float* partials, long long rows, long long columns,
                                                long long slab) {
  const long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * N;
  const long long begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
  float sums[sum_count][N] = {};
  if (column < columns) {
    const long long step = (long long)blockDim.y * columns;
    const long long stop = end * columns + column;
    long long e = (begin + threadIdx.y) * columns + column;
    for (; e + (U - 1) * step < stop; e += U * step) {
      Inputs<N> in[U];
#pragma unroll
      for (int u = 0; u < U; ++u) in[u].load_from(p, e + u * step);
#pragma unroll
      for (int u = 0; u < U; ++u) in[u].finish(p, e + u * step, sums);
    }
#pragma unroll 1
    for (; e < stop; e += step) {
      Inputs<N> in;
      in.load_from(p, e);
      in.finish(p, e, sums);
    }
  }
  __shared__ float part[block_threads * N];  // [blockDim.y][blockDim.x * N]
  const int width = blockDim.x * N, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int s = 0; s < sum_count; ++s) {
    if (s > 0) __syncthreads();  // the sum before is read
#pragma unroll
    for (int k = 0; k < N; ++k) part[threadIdx.y * width + threadIdx.x * N + k] = sums[s][k];
    __syncthreads();
    for (int c = thread; c < width; c += block_threads) {
      const long long to = (long long)blockIdx.x * width + c;
      float total = 0;
      for (int y = 0; y < (int)blockDim.y; ++y) total += part[y * width + c];
      if (to < columns) partials[((long long)s * gridDim.y + blockIdx.y) * columns + to] = total;
    }
  }
}
)";

inline constexpr const char* column_kernel = R"(
extern "C" __global__ void __launch_bounds__(block_threads, resident_blocks) {0}(
    const Pointers p, float* partials, long long rows, long long columns, long long slab) {{
  wait_for_predecessors();
  rows_of_columns<{1}, {2}>(p, partials, rows, columns, slab);
}}
)";

}  // namespace crest::cuda
