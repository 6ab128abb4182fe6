// Tiles of FlashAttention: rows of D 16-bit elements in shared memory, and products of warps on
// them.
#pragma once
#include "backend/cuda/device/mma.h"

namespace crest::cuda {

// Rows of one head in global memory: row r starts at base + r stride and has `width` elements;
// rows >= count read as zeros.
template <class T>
struct HeadRows {
  T* base;
  int stride, count, width;
  bool vectors;  // rows are aligned to 16 bytes and width is a multiple of 8
};

// Elements 8 chunk .. + 7 of a row; zeros beyond its end.
template <class T>
__device__ inline Vec<std::remove_const_t<T>, 8> load_chunk(const HeadRows<T>& g, int row, int chunk) {
  using Bare = std::remove_const_t<T>;
  Vec<Bare, 8> v = {};
  if (row >= g.count || chunk * 8 >= g.width) return v;
  const Bare* p = g.base + int64_t(row) * g.stride + chunk * 8;
  if (g.vectors) return load_vec<8>(p);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (chunk * 8 + i < g.width) v.x[i] = p[i];
  return v;
}

template <class T>
__device__ inline void store_chunk(const HeadRows<T>& g, int row, int chunk, const Vec<T, 8>& v) {
  if (row >= g.count || chunk * 8 >= g.width) return;
  T* p = g.base + int64_t(row) * g.stride + chunk * 8;
  if (g.vectors) return store_vec(p, v);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (chunk * 8 + i < g.width) p[i] = v.x[i];
}

// Places of elements in a tile. A row is cut into chunks of 16 bytes. Chunks are permuted within a
// row, so the eight rows read by an ldmatrix, and the rows written by a warp, lie in different
// banks.
template <int D>
struct TileLayout {
  static_assert(D % 32 == 0);
  static constexpr int chunks = D / 8, pitch = 2 * D;
  __device__ static int swizzle(int row) { return chunks % 8 == 0 ? row & 7 : (row >> 1) & 3; }
  // Byte of a chunk.
  __device__ static int offset(int row, int chunk) { return row * pitch + ((chunk ^ swizzle(row)) << 4); }
};

// The row addressed by this lane in ldmatrix, relative to a tile's row (a multiple of 8).
template <int D>
class LaneRow {
 public:
  // Matrices (rows 0-7, first chunk), (rows 8-15, first), (rows 0-7, second), (rows 8-15, second):
  // an A fragment, and read with transposition two B fragments side by side (16 rows, 16 columns).
  __device__ static LaneRow by_rows() { return {int(threadIdx.x % 16), int(threadIdx.x % 32 / 16)}; }
  // (rows 0-7, first), (rows 0-7, second), (rows 8-15, first), (rows 8-15, second): two B fragments
  // of the transpose of 16 rows.
  __device__ static LaneRow by_chunks() {
    return {int(threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8), int(threadIdx.x / 8 % 2)};
  }
  // (rows 0-7, first to fourth chunk): B fragments of the transpose of 8 rows, of two k.
  __device__ static LaneRow by_row() { return {int(threadIdx.x % 8), int(threadIdx.x % 32 / 8)}; }
  // Bytes from the tile's row to columns 16 k of this lane's row.
  __device__ int at(int k) const { return row_ + (chunk_ ^ (k << 5)); }

 private:
  __device__ LaneRow(int row, int chunk)
      : row_(row * TileLayout<D>::pitch), chunk_((chunk ^ TileLayout<D>::swizzle(row)) << 4) {}
  int row_, chunk_;
};

// A chunk of a row into its place in a tile, asynchronously where rows are aligned.
template <class T>
__device__ inline void load_one(unsigned char* to, const HeadRows<T>& g, int row, int chunk) {
  if (g.vectors)
    copy_async<16>(shared_address(to), g.base + int64_t(row) * g.stride + chunk * 8,
                   row < g.count && chunk * 8 < g.width);
  else
    store_vec(reinterpret_cast<std::remove_const_t<T>*>(to), load_chunk(g, row, chunk));
}

// Copies rows first .. first + Rows - 1 of a head into a tile, by all threads of the block,
// asynchronously.
template <int D, int Rows, int Threads, class T>
__device__ inline void load_tile(unsigned char* tile, const HeadRows<T>& g, int first) {
  using Layout = TileLayout<D>;
  // Threads side by side in a row, and rows at a time: whole periods of the swizzle.
  constexpr int across = Layout::chunks % 8 ? 4 : Layout::chunks <= 16 ? Layout::chunks : 8, step = Threads / across;
  if constexpr (Rows % step != 0 || step % 8 != 0) {  // a block of one warp is less than a period
    for (int item = int(threadIdx.x); item < Rows * Layout::chunks; item += Threads) {
      int row = item / Layout::chunks, chunk = item % Layout::chunks;
      load_one(tile + Layout::offset(row, chunk), g, first + row, chunk);
    }
  } else {
    int row = int(threadIdx.x) / across, chunk = int(threadIdx.x) % across;
    unsigned char* to = tile + Layout::offset(row, chunk);
    const T* from = g.base + int64_t(first + row) * g.stride + chunk * 8;
    if (g.vectors) {
      SharedAddress address = shared_address(to);
#pragma unroll
      for (int i = 0; i < Rows / step; ++i)
#pragma unroll
        for (int j = 0; j < Layout::chunks / across; ++j)
          copy_async<16>(address + unsigned(i * step * Layout::pitch + j * across * 16),
                         from + int64_t(i * step) * g.stride + j * across * 8,
                         first + row + i * step < g.count && (chunk + j * across) * 8 < g.width);
    } else {
#pragma unroll 1
      for (int i = 0; i < Rows / step; ++i)
#pragma unroll 1
        for (int j = 0; j < Layout::chunks / across; ++j)
          store_vec(reinterpret_cast<std::remove_const_t<T>*>(to + i * step * Layout::pitch + j * across * 16),
                    load_chunk(g, first + row + i * step, chunk + j * across));
    }
  }
}

// Writes `rows` rows of a tile, from row tile_row, to rows first .. of a head, by one warp.
template <int D, class T>
__device__ inline void store_rows(const unsigned char* tile, int tile_row, int rows, const HeadRows<T>& g, int first) {
  using Layout = TileLayout<D>;
#pragma unroll 4
  for (int item = int(threadIdx.x % 32); item < rows * Layout::chunks; item += 32) {
    int row = item / Layout::chunks, chunk = item % Layout::chunks;
    auto* from = reinterpret_cast<const T*>(tile + Layout::offset(tile_row + row, chunk));
    store_chunk(g, first + row, chunk, load_vec<8>(from));
  }
}

// Writes a warp's C fragments, MT x D / 8 of them, times `factor` as T to a tile's rows tile_row
// ...
template <int D, class T, int MT>
__device__ inline void fragments_to_tile(unsigned char* tile, int tile_row, const float (&c)[MT][D / 8][4],
                                         const float (&factor)[MT][2]) {
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<uint32_t*>(tile + TileLayout<D>::offset(tile_row + 16 * m + 8 * h + g, n) + 4 * t) =
            pack2<T>(c[m][n][2 * h] * factor[m][h], c[m][n][2 * h + 1] * factor[m][h]);
}

// A fragments of 16 MT rows, either kept in registers or read when they are needed.
template <int D, int MT, bool InRegisters>
class RowFragments {
 public:
  // rows: of this warp in shared memory.
  __device__ void load(SharedAddress rows, const LaneRow<D>& lane) {
    rows_ = rows;
    if constexpr (InRegisters)
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
#pragma unroll
        for (int m = 0; m < MT; ++m)
          load_matrices(kept_[k][m], rows + unsigned(16 * m * TileLayout<D>::pitch + lane.at(k)));
  }
  __device__ void get(uint32_t (&a)[MT][4], int k, const LaneRow<D>& lane) const {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      if constexpr (InRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = kept_[k][m][i];
      } else {
        load_matrices(a[m], rows_ + unsigned(16 * m * TileLayout<D>::pitch + lane.at(k)));
      }
    }
  }

 private:
  SharedAddress rows_;
  uint32_t kept_[InRegisters ? D / 16 : 1][MT][4];
};

// c = A B^T: A of 16 MT rows and D columns, B the 8 NT rows of a tile at `rows`.
template <class T, int D, int MT, int NT, bool InRegisters>
__device__ inline void multiply_transposed(float (&c)[MT][NT][4], const RowFragments<D, MT, InRegisters>& a_rows,
                                           SharedAddress rows, const LaneRow<D>& by_rows, const LaneRow<D>& by_chunks) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
  static_assert(NT % 2 == 0);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t a[MT][4];
    a_rows.get(a, k, by_rows);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      uint32_t b[4];
      load_matrices(b, rows + unsigned(8 * n * TileLayout<D>::pitch + by_chunks.at(k)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        multiply_add<T>(c[m][n], a[m], b[0], b[1]);
        multiply_add<T>(c[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// c += P B: P of 16 MT rows and 8 NT columns, given as packed C fragments; B the 8 NT rows of a
// tile at `rows`, 8 OT of their columns from 8 first (even) on. Fragments 2 k and 2 k + 1 of C side
// by side are fragment k of A.
template <class T, int D, int MT, int NT, int OT>
__device__ inline void multiply_accumulate(float (&c)[MT][OT][4], const uint32_t (&p)[MT][NT][2], SharedAddress rows,
                                           const LaneRow<D>& by_rows, int first = 0) {
#pragma unroll
  for (int k = 0; k < NT / 2; ++k)
#pragma unroll
    for (int n = 0; n < OT; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, rows + unsigned(16 * k * TileLayout<D>::pitch + by_rows.at((first + n) / 2)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        const uint32_t a[4] = {p[m][2 * k][0], p[m][2 * k][1], p[m][2 * k + 1][0], p[m][2 * k + 1][1]};
        multiply_add<T>(c[m][n], a, b[0], b[1]);
        multiply_add<T>(c[m][n + 1], a, b[2], b[3]);
      }
    }
}

}  // namespace crest::cuda
