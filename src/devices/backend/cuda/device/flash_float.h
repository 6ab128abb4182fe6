// Tiles of FlashAttention on floats in shared memory, and products of warps on them by tensor
// cores. Passes = 1 rounds both operands of a product to TF32. Passes = 3 splits each into the sum
// of two TF32 numbers and adds up three of the four products, exact in float up to 2^-22.
//
// Tensor cores round sums towards zero. To keep this from adding up, three passes sum 16 columns at
// a time, small terms first, and add this to the result in float arithmetic.
#pragma once
#include "backend/cuda/device/flash_args.h"

namespace crest::cuda {

// Floats from a row to the next: rows begin four banks apart, so neither ldmatrix nor the reads of
// add_weighted have conflicts.
template <int D>
constexpr int float_pitch = D + 4;

template <class T>
__device__ inline Vec<float, 4> load_quad(const HeadRows<T>& g, int row, int column) {
  Vec<float, 4> v = {};
  if (row >= g.count || column >= g.width) return v;
  const float* from = g.base + int64_t(row) * g.stride + column;
  if (g.vectors) return load_vec<4>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < g.width) v.x[i] = from[i];
  return v;
}

__device__ inline void store_quad(const HeadRows<float>& g, int row, int column, const Vec<float, 4>& v) {
  if (row >= g.count || column >= g.width) return;
  float* to = g.base + int64_t(row) * g.stride + column;
  if (g.vectors) return store_vec(to, v);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < g.width) to[i] = v.x[i];
}

// Calls body(row, column) for every four columns of this thread in a tile.
template <int D, int Rows, int Threads, class Body>
__device__ inline void for_own_quads(Body&& body) {
  constexpr int across = D / 4;
#pragma unroll 4
  for (int item = int(threadIdx.x); item < Rows * across; item += Threads) body(item / across, item % across * 4);
}

// Copies rows first .. first + Rows - 1 of a head into a tile, by all threads of the block,
// asynchronously.
template <int D, int Rows, int Threads>
__device__ inline void load_float_tile(float* tile, const HeadRows<const float>& g, int first) {
  for_own_quads<D, Rows, Threads>([&](int row, int column) {
    float* to = tile + row * float_pitch<D> + column;
    if (g.vectors)
      copy_async<16>(shared_address(to), g.base + int64_t(first + row) * g.stride + column,
                     first + row < g.count && column < g.width);
    else
      store_vec(to, load_quad(g, first + row, column));
  });
}

// Makes a tile copied by load_float_tile ready for products, without the barrier after it: every
// thread rounds its own copies.
template <int Passes, int D, int Rows, int Threads>
__device__ inline void round_float_tile(float* tile) {
  if constexpr (Passes == 1)
    for_own_quads<D, Rows, Threads>([&](int row, int column) {
      float* at = tile + row * float_pitch<D> + column;
      Vec<float, 4> v = load_vec<4>(at);
#pragma unroll
      for (int i = 0; i < 4; ++i) v.x[i] = __uint_as_float(round_tf32(v.x[i]));
      store_vec(at, v);
    });
}

// N registers of a fragment.
template <int Passes, int N>
struct FloatFragment {
  uint32_t big[N], small[Passes == 3 ? N : 1];

  // A number; `rounded`: of a tile prepared by round_float_tile.
  __device__ void set(int i, float x, bool rounded) {
    if constexpr (Passes == 1) {
      big[i] = rounded ? __float_as_uint(x) : round_tf32(x);
    } else {
      // As round_tf32, except NaN may become a number; then `small` is NaN. Tensor cores cut off
      // the extra bits.
      big[i] = (__float_as_uint(x) + 0x1000u) & ~0x1fffu;
      small[i] = __float_as_uint(x - __uint_as_float(big[i]));
    }
  }
};

// c += A B of 16 x 16 and 16 x 8 elements.
template <int Passes>
__device__ inline void multiply_add_float(float (&c)[4], const FloatFragment<Passes, 4> (&a)[2],
                                          const FloatFragment<Passes, 4>& b) {
  if constexpr (Passes == 1) {
    multiply_add_tf32(c, a[0].big, b.big[0], b.big[1]);
    multiply_add_tf32(c, a[1].big, b.big[2], b.big[3]);
  } else {
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      multiply_add_tf32(sum, a[k].small, b.big[2 * k], b.big[2 * k + 1]);
      multiply_add_tf32(sum, a[k].big, b.small[2 * k], b.small[2 * k + 1]);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) multiply_add_tf32(sum, a[k].big, b.big[2 * k], b.big[2 * k + 1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += sum[i];
  }
}

// c = A B^T: A of the 16 MT rows of a tile at a_rows, B the 8 NT rows at b_rows, both of D columns.
template <int Passes, int D, int MT, int NT>
__device__ inline void multiply_rows(float (&c)[MT][NT][4], const float* a_rows, const float* b_rows) {
  constexpr int pitch = float_pitch<D>;
  int lane = int(threadIdx.x % 32);
  // Matrices of 8 rows and 4 columns. A: rows 0-7, rows 8-15, then the next four columns. B: 16
  // columns side by side.
  SharedAddress a_at = shared_address(a_rows + lane % 16 * pitch + lane / 16 * 4);
  SharedAddress b_at = shared_address(b_rows + lane % 8 * pitch + lane / 8 * 4);
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
#pragma unroll(Passes == 1 ? 2 : 1)
  for (int d = 0; d < D; d += 16) {
    FloatFragment<Passes, 4> a[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t words[4];
        load_matrices(words, a_at + unsigned(4 * (16 * m * pitch + d + 8 * k)));
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][k].set(i, __uint_as_float(words[i]), true);
      }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      uint32_t words[4];
      load_matrices(words, b_at + unsigned(4 * (8 * n * pitch + d)));
      FloatFragment<Passes, 4> b;
#pragma unroll
      for (int i = 0; i < 4; ++i) b.set(i, __uint_as_float(words[i]), true);
#pragma unroll
      for (int m = 0; m < MT; ++m) multiply_add_float<Passes>(c[m][n], a[m], b);
    }
  }
}

// c += P B: P of 16 MT rows and 8 NT columns in C fragments, B the 8 NT rows of a tile at `rows`, 8
// OT columns of them. Columns 2t and 2t + 1 of a C fragment are taken as columns t and t + 4 of the
// A fragment, and rows of B alike. Column j of fragments 4 i .. 4 i + 3 of c is columns 32 i + 4 j
// .. + 3 of B.
template <int Passes, int D, int MT, int NT, int OT>
__device__ inline void add_weighted(float (&c)[MT][OT][4], const float (&p)[MT][NT][4], const float* rows) {
  constexpr int pitch = float_pitch<D>;
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
  const float* from = rows + 2 * t * pitch + 4 * g;
#pragma unroll
  for (int u = 0; u < NT; u += 2) {
    FloatFragment<Passes, 4> a[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float(&x)[4] = p[m][u + k];
        a[m][k].set(0, x[0], false), a[m][k].set(1, x[2], false);
        a[m][k].set(2, x[1], false), a[m][k].set(3, x[3], false);
      }
#pragma unroll
    for (int i = 0; i < OT / 4; ++i) {
      Vec<float, 4> row[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) row[k] = load_vec<4>(from + (8 * (u + k / 2) + k % 2) * pitch + 32 * i);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        FloatFragment<Passes, 4> b;
#pragma unroll
        for (int k = 0; k < 4; ++k) b.set(k, row[k].x[n], true);
#pragma unroll
        for (int m = 0; m < MT; ++m) multiply_add_float<Passes>(c[m][4 * i + n], a[m], b);
      }
    }
  }
}

// Writes the sums of add_weighted, times `factor`, to rows first .. + 16 MT - 1 of a head, from
// `column` on.
template <int MT, int OT>
__device__ inline void store_weighted(const HeadRows<float>& g, int first, const float (&c)[MT][OT][4],
                                      const float (&factor)[MT][2], int column = 0) {
  int lane_row = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < OT / 4; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          Vec<float, 4> v;
#pragma unroll
          for (int n = 0; n < 4; ++n) v.x[n] = c[m][4 * i + n][2 * h + e] * factor[m][h];
          store_quad(g, first + 16 * m + 8 * h + lane_row, column + 32 * i + 8 * t + 4 * e, v);
        }
}

}  // namespace crest::cuda
