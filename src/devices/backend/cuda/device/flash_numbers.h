// Needed by the kernels for wide heads (flash_wide.h) of a format of numbers: tiles in shared
// memory, products of a warp of 16 rows, fragments exchanged by warps, rows in global memory.
#pragma once
#include "backend/cuda/device/flash_float.h"

namespace crest::cuda {

// bf16 or f16 numbers.
template <class T>
struct HalfNumbers {
  using Element = T;
  static constexpr int words = 2;  // of a C fragment, as the operand of a product, in a lane
  template <int D>
  static constexpr int row_bytes = 2 * D;

  template <int D, int Rows, int Threads>
  __device__ static void load(unsigned char* tile, const HeadRows<const T>& g, int first) {
    load_tile<D, Rows, Threads>(tile, g, first);
  }
  template <int D, int Rows, int Threads>
  __device__ static void prepare(unsigned char*) {}

  // c = A B^T: A of 16 rows of a tile, B of 8 NT rows.
  template <int D, int NT>
  __device__ static void multiply_rows(float (&c)[1][NT][4], const unsigned char* a_rows, const unsigned char* b_rows) {
    auto by_rows = LaneRow<D>::by_rows();
    RowFragments<D, 1, false> a;
    a.load(shared_address(a_rows), by_rows);
    if constexpr (NT % 2 == 0) {
      multiply_transposed<T, D>(c, a, shared_address(b_rows), by_rows, LaneRow<D>::by_chunks());
    } else {
      static_assert(NT == 1);
      auto by_row = LaneRow<D>::by_row();
      SharedAddress rows = shared_address(b_rows);
#pragma unroll
      for (int i = 0; i < 4; ++i) c[0][0][i] = 0;
#pragma unroll 4
      for (int k = 0; k < D / 16; k += 2) {
        uint32_t b[4], left[1][4];
        load_matrices(b, rows + unsigned(by_row.at(k)));
        a.get(left, k, by_rows);
        multiply_add<T>(c[0][0], left[0], b[0], b[1]);
        a.get(left, k + 1, by_rows);
        multiply_add<T>(c[0][0], left[0], b[2], b[3]);
      }
    }
  }

  __device__ static void pack(uint32_t (&w)[words], const float (&c)[4]) {
    w[0] = pack2<T>(c[0], c[1]), w[1] = pack2<T>(c[2], c[3]);
  }
  // c += P B: B of 8 NT rows of a tile, 8 OT columns from `column` on.
  template <int D, int NT, int OT>
  __device__ static void accumulate(float (&c)[1][OT][4], const uint32_t (&p)[1][NT][words], const unsigned char* rows,
                                    int column) {
    multiply_accumulate<T, D>(c, p, shared_address(rows), LaneRow<D>::by_rows(), column / 8);
  }

  // The lane's part of a . b, of its columns among the four lanes of a row.
  __device__ static float dot(const HeadRows<const T>& a, const HeadRows<const T>& b, int row) {
    float sum = 0;
    for (int chunk = int(threadIdx.x % 4); chunk * 8 < a.width; chunk += 4) {
      Vec<T, 8> x = load_chunk(a, row, chunk), y = load_chunk(b, row, chunk);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(widen(x.x[i]), widen(y.x[i]), sum);
    }
    return sum;
  }

  // Writes the sums of accumulate, times `factor`, to rows first .. + 15 of a head, from `column`
  // on.
  template <int OT>
  __device__ static void store(const HeadRows<T>& g, int first, const float (&c)[1][OT][4], const float (&factor)[1][2],
                               int column) {
    int lane_row = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int row = first + 8 * h + lane_row;
      if (row >= g.count) continue;
      T* to = g.base + int64_t(row) * g.stride;
#pragma unroll
      for (int n = 0; n < OT; ++n) {
        int at = column + 8 * n + 2 * t;
        float x = c[0][n][2 * h] * factor[0][h], y = c[0][n][2 * h + 1] * factor[0][h];
        if (g.vectors) {
          if (at < g.width) *reinterpret_cast<uint32_t*>(to + at) = pack2<T>(x, y);
        } else {
          if (at < g.width) to[at] = narrow<T>(x);
          if (at + 1 < g.width) to[at + 1] = narrow<T>(y);
        }
      }
    }
  }
};

// f32 numbers, in as many passes of tensor cores as flash_float.h says.
template <int Passes>
struct FloatNumbers {
  using Element = float;
  static constexpr int words = 4;
  template <int D>
  static constexpr int row_bytes = 4 * float_pitch<D>;

  template <int D, int Rows, int Threads>
  __device__ static void load(unsigned char* tile, const HeadRows<const float>& g, int first) {
    load_float_tile<D, Rows, Threads>(reinterpret_cast<float*>(tile), g, first);
  }
  template <int D, int Rows, int Threads>
  __device__ static void prepare(unsigned char* tile) {
    round_float_tile<Passes, D, Rows, Threads>(reinterpret_cast<float*>(tile));
  }
  template <int D, int NT>
  __device__ static void multiply_rows(float (&c)[1][NT][4], const unsigned char* a_rows, const unsigned char* b_rows) {
    cuda::multiply_rows<Passes, D>(c, reinterpret_cast<const float*>(a_rows), reinterpret_cast<const float*>(b_rows));
  }
  __device__ static void pack(uint32_t (&w)[words], const float (&c)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = __float_as_uint(c[i]);
  }
  template <int D, int NT, int OT>
  __device__ static void accumulate(float (&c)[1][OT][4], const uint32_t (&p)[1][NT][words], const unsigned char* rows,
                                    int column) {
    float x[1][NT][4];
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[0][n][i] = __uint_as_float(p[0][n][i]);
    add_weighted<Passes, D>(c, x, reinterpret_cast<const float*>(rows) + column);
  }
  __device__ static float dot(const HeadRows<const float>& a, const HeadRows<const float>& b, int row) {
    float sum = 0;
    for (int column = int(threadIdx.x % 4) * 4; column < a.width; column += 16) {
      Vec<float, 4> x = load_quad(a, row, column), y = load_quad(b, row, column);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum = fmaf(x.x[i], y.x[i], sum);
    }
    return sum;
  }
  template <int OT>
  __device__ static void store(const HeadRows<float>& g, int first, const float (&c)[1][OT][4],
                               const float (&factor)[1][2], int column) {
    store_weighted(g, first, c, factor, column);
  }
};

}  // namespace crest::cuda
