// Sums over the rows of a matrix, column by column:
// the parts of a bias gradient, alone or fused.
//
// A block of X * Y threads owns a strip of X * V columns. Thread t is column lane t % X and holds V
// columns in sum[V]; it adds up every Y-th row, from row lane t / X on. Then reduce_strip() joins
// the row lanes. The order of the additions depends on X, Y, V and the rows only, so results are
// bitwise identical every time.
#pragma once
#include "backend/cuda/device/words.h"

namespace crest::cuda {

template <int X, int Y, int V>
struct Strip {
  static_assert(X > 0 && 32 % X == 0 && (X * Y) % 32 == 0 && X * V <= X * Y);
  static constexpr int threads = X * Y;
  static constexpr int columns = X * V;

  __device__ static int column_lane() { return int(threadIdx.x) % X; }
  __device__ static int row_lane() { return int(threadIdx.x) / X; }

  // Adds rows [begin, end) of x[.., n], V columns from `column` on, to sum. 8 loads are in flight,
  // also at the end: missing rows count as zeros.
  template <class T>
  __device__ static void add_rows(const T* x, int64_t n, int64_t begin, int64_t end, int64_t column, float (&sum)[V]) {
    constexpr int in_flight = 8;
    const T* p = x + (begin + row_lane()) * n + column;
    const int64_t step = Y * n;
    int64_t left = end - begin - row_lane();
    for (; left > 0; left -= in_flight * Y) {
      Words<T, V> v[in_flight];
#pragma unroll
      for (int i = 0; i < in_flight; ++i, p += step) v[i] = left > i * Y ? load_words<V>(p) : Words<T, V>();
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += v[i][k];
    }
  }

  // The sums over all row lanes: thread t < columns gets column t of the strip, the others 0. All
  // threads must call it.
  __device__ static float reduce(float (&sum)[V]) {
    constexpr int warps = threads / 32;
    __shared__ float part[warps][columns];
#pragma unroll
    for (int k = 0; k < V; ++k)
      for (int d = X; d < 32; d *= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], d);
    __syncthreads();  // the parts of a reduction before this one may still be read
    if (threadIdx.x % 32 < X)
      for (int k = 0; k < V; ++k) part[threadIdx.x / 32][column_lane() * V + k] = sum[k];
    __syncthreads();
    float total = 0;
    if (threadIdx.x < columns)
      for (int w = 0; w < warps; ++w) total += part[w][threadIdx.x];
    return total;
  }
};

}  // namespace crest::cuda
