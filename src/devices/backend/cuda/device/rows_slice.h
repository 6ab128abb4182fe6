// Kernels over rows: a row of C elements lies in the registers of `Threads` threads (a warp, or a
// whole block), up to K vectors of 16 bytes in each. Vector k of a thread is vector k * Threads +
// index of the row, so neighboring threads touch neighboring memory.
#pragma once
#include "backend/cuda/device/rows_pack.h"

namespace crest::cuda {

// Rows of a block with `threads` threads for each.
constexpr int rows_a_block(int threads) { return threads == 32 ? 4 : 1; }

template <class T, int K, int Threads>
struct RowSlice {
  static constexpr int N = Pack<T>::size;
  int64_t row;    // one a warp or one a block
  int64_t begin;  // of the thread's first vector
  int column;     // its column
  int left;       // vectors of the row from there on

  __device__ explicit RowSlice(int cols) {
    unsigned index = threadIdx.x % Threads;
    row = Threads == 32 ? int64_t(blockIdx.x) * rows_a_block(32) + threadIdx.x / 32 : int64_t(blockIdx.x);
    column = int(index) * N;
    begin = row * cols + column;
    left = cols / N - int(index);
  }
  __device__ bool first() const { return column == 0; }
  // Whether vector k exists; a warp's K is
  // minimal, so only its last may be missing.
  __device__ bool has(int k) const { return (Threads == 32 && k < K - 1) || k * Threads < left; }

  // The vectors from x on, the address of the thread's first one; missing ones are filled with
  // `word`.
  __device__ void load(Pack<T> (&v)[K], const T* x, uint32_t word = 0) const {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      v[k] = {{word, word, word, word}};
      if (has(k)) v[k] = load_pack(x + k * Threads * N);
    }
  }
  __device__ void store(T* y, int k, const Pack<T>& v) const {
    if (has(k)) store_pack(y + k * Threads * N, v);
  }
  __device__ static float sum(float x) { return block_sum<Threads>(x); }
  __device__ static float max(float x) { return block_max<Threads>(x); }
};

}  // namespace crest::cuda
