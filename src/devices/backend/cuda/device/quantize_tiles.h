// Kernels over tiles: quantize the values of a source, element by element, and write them with
// their transpose, with a scale of the tensor (quantize_tiles) or of each block (quantize_blocks).
#pragma once
#include "backend/cuda/device/quantize.h"

namespace crest::cuda {

constexpr int tile_rows = 128, tile_pack = 4, tile_vector = 8;  // a thread has 4 rows of 8 numbers
constexpr int tile_groups = tile_rows / tile_pack;              // a word of a transpose each

// Of a row, a thread has tile_vector numbers: vectors of `vector` columns, each `step` columns
// behind the one before.
template <int Columns, int Vector = tile_vector>
struct TileShape {
  static constexpr int columns = Columns, across = columns / tile_vector, threads = across * tile_groups;
  static constexpr int warps = threads / 32;
  static constexpr int vector = Vector, step = across * vector;
};
// With a scale of the tensor, a tile has 64 columns. Blocks need all 128 numbers of a scale, of
// rows and of columns.
template <class Scales>
using ShapeOf = TileShape<std::is_same_v<Scales, Quantizer> ? 64 : int(fp8_block)>;

// The `values` tensors of type T made by Source; each may be quantized, written unchanged and
// summed by columns. Source has
//   Type, values, e5m2(value), exact: whether the one value needs no rounding to Type; it is then
//     not written, and whole(row) has its numbers
//   Row, Columns: what is read of a row's eight numbers, and what belongs to their columns
//   columns(column, width), compute(row, columns, x[values][8]), and where it is needed
//     load(row, index, column, width)
//   vectors: whether rows are read in vectors of 16 bytes, `packs` of them; then also
//     address(pack, index, column, width), take(row, pack, value), and rest(row, index) for what
//     is not in packs
template <class Source, class Scales>
struct Tiles {
  using T = typename Source::Type;
  using Shape = ShapeOf<Scales>;
  static constexpr int values = Source::values;
  Source source;
  Scales quantizers[values];
  T* stores[values];             // null: not wanted
  float* sums[values];           // [tiles down][width]; null: not wanted
  int64_t height, width, pitch;  // pitch: of transposes
  int64_t tiles_across, tiles;

  // The numbers of a thread's row, rounded to T; zeros below the last one.
  __device__ void numbers(const typename Source::Row& loaded, const typename Source::Columns& of, bool there,
                          float (&x)[values][8], Eight<T, Source::vectors> (&rounded)[values]) const {
#pragma unroll
    for (int v = 0; v < values; ++v)
#pragma unroll
      for (int i = 0; i < 8; ++i) x[v][i] = 0.f;
    if (there) source.compute(loaded, of, x);
    if constexpr (!Source::exact)
#pragma unroll
      for (int v = 0; v < values; ++v) rounded[v].narrow_from(x[v]);
  }
};

// The first row and column of a thread in a tile.
template <class Shape>
struct TilePlace {
  int across = int(threadIdx.x) % Shape::across, group = int(threadIdx.x) / Shape::across;
  int64_t top, left, row, column;
  __device__ TilePlace(int64_t tile, int64_t tiles_across)
      : top(tile / tiles_across * tile_rows),
        left(tile % tiles_across * Shape::columns),
        row(top + group * tile_pack),
        column(left + in_tile(0)) {}
  // The column in the tile of the thread's number i.
  __device__ int in_tile(int i) const {
    return i / Shape::vector * Shape::step + across * Shape::vector + i % Shape::vector;
  }
};

// A thread copies its vectors of the next tile to its own places in shared memory while it works on
// the present one: no barrier, and copies in flight cost no registers.
template <class Source, class Scales>
struct CopiesAhead {
  using Args = Tiles<Source, Scales>;
  using Shape = typename Args::Shape;
  using Word = Pack<typename Source::Type>;
  static constexpr size_t bytes = Source::vectors ? size_t(2 * tile_pack * Source::packs * Shape::threads) * 16 : 0;
  Word* staged;

  __device__ Word* place(int stage, int r, int pack) const {
    return staged + ((stage * tile_pack + r) * Source::packs + pack) * Shape::threads + threadIdx.x;
  }
  __device__ void fetch(const Args& a, int64_t tile, int stage) const {
    if constexpr (Source::vectors) {
      TilePlace<Shape> at(tile, a.tiles_across);
      if (tile < a.tiles && at.column < a.width)
#pragma unroll
        for (int r = 0; r < tile_pack; ++r)
          if (at.row + r < a.height)
#pragma unroll
            for (int i = 0; i < Source::packs; ++i)
              copy_async(place(stage, r, i), a.source.address(i, at.row + r, at.column, a.width));
      commit_copies();
    }
  }
  // The rows of the tile with copies started before the next tile's.
  __device__ void rows(const Args& a, const TilePlace<Shape>& at, int stage,
                       typename Source::Row (&rows)[tile_pack]) const {
    if constexpr (Source::vectors) {
#pragma unroll
      for (int r = 0; r < tile_pack; ++r)
        if (at.row + r < a.height) a.source.rest(rows[r], at.row + r);
      wait_copies<1>();
#pragma unroll
      for (int r = 0; r < tile_pack; ++r)
#pragma unroll
        for (int i = 0; i < Source::packs; ++i)
          if (at.row + r < a.height && at.column < a.width) a.source.take(rows[r], i, *place(stage, r, i));
    } else {
      for (int r = 0; r < tile_pack; ++r)
        if (at.row + r < a.height) a.source.load(rows[r], at.row + r, at.column, a.width);
    }
  }
  // body(place, columns, rows) with a thread's values of each tile of its block.
  template <class Body>
  __device__ void each_tile(const Args& a, Body body) const {
    fetch(a, blockIdx.x, 0);
    int stage = 0;
    for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x, stage ^= 1) {
      const TilePlace<Shape> at(tile, a.tiles_across);
      fetch(a, tile + gridDim.x, stage ^ 1);
      const auto columns = a.source.columns(at.column, a.width);
      typename Source::Row own[tile_pack] = {};
      rows(a, at, stage, own);
      body(at, columns, own);
    }
  }
};

template <bool Vectors>
__device__ inline void store_row_codes(uint8_t* to, const uint32_t (&codes)[2], int64_t column, int64_t width) {
  if constexpr (Vectors)
    *reinterpret_cast<uint2*>(to) = make_uint2(codes[0], codes[1]);
  else
    for (int i = 0; i < 8 && column + i < width; ++i) to[i] = uint8_t(codes[i / 4] >> (i % 4 * 8));
}

// The codes of a tile, by columns: 128 bytes each, in vectors of 16. Their order differs from
// column to column, so the columns of a warp's threads are in different banks.
template <class Shape>
struct TurnedCodes {
  static constexpr int word = 4, vectors = tile_groups / word;
  alignas(16) uint32_t words[Shape::columns][tile_groups];

  // The same for all columns of a thread.
  __device__ static int order(int column) { return column / Shape::vector % vectors; }
  static_assert(Shape::across % vectors == 0);
  // codes: of four columns and a row; they become codes of four rows and a column.
  __device__ void put(const TilePlace<Shape>& at, uint32_t (&codes)[2][tile_pack]) {
    const int vector = (at.group / word) ^ order(at.in_tile(0));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      transpose_codes(codes[half]);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[at.in_tile(half * 4 + i)][vector * word + at.group % word] = codes[half][i];
    }
  }
  // After a barrier. Eight threads write a row of the transpose, with a pitch in multiples of 16.
  __device__ void write(const TilePlace<Shape>& at, uint8_t* columns, int64_t width, int64_t pitch) const {
    const int part = int(threadIdx.x) % vectors;
    const int64_t first = at.top + part * 16;
    for (int c = int(threadIdx.x) / vectors; c < Shape::columns; c += Shape::threads / vectors)
      if (at.left + c < width && first < pitch)
        *reinterpret_cast<uint4*>(columns + (at.left + c) * pitch + first) =
            *reinterpret_cast<const uint4*>(&words[c][(part ^ order(c)) * word]);
  }
  // All of it, by a block that may still read the old content.
  __device__ void transpose(const TilePlace<Shape>& at, uint32_t (&codes)[2][tile_pack], uint8_t* columns,
                            int64_t width, int64_t pitch) {
    __syncthreads();
    put(at, codes);
    __syncthreads();
    write(at, columns, width, pitch);
  }
};

// Sums of the columns of a tile: of the groups of a warp, then of the warps, in order.
template <class Shape>
struct ColumnParts {
  float parts[Shape::warps][Shape::columns];

  __device__ void put(const TilePlace<Shape>& at, const float (&sums)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = sums[i];
#pragma unroll
      for (int d = Shape::across; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
      if (threadIdx.x % 32 < Shape::across) parts[threadIdx.x / 32][at.in_tile(i)] = sum;
    }
  }
  // After a barrier.
  __device__ void write(const TilePlace<Shape>& at, int column, float* sums, int64_t width) const {
    if (at.left + column >= width) return;
    float sum = 0;
    for (int w = 0; w < Shape::warps; ++w) sum += parts[w][column];
    sums[at.top / tile_rows * width + at.left + column] = sum;
  }
};

// Magnitudes without a record from the step before.
template <class Source>
__global__ void __launch_bounds__(ShapeOf<Quantizer>::threads)
    record_tiles(const __grid_constant__ Tiles<Source, Quantizer> a) {
  wait_for_predecessors();
  constexpr int values = Source::values;
  bool known = true;
  for (int v = 0; v < values; ++v) known = known && (!a.quantizers[v].wanted() || a.quantizers[v].is_known());
  if (known) return;
  Seen seen[values];
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    TilePlace<ShapeOf<Quantizer>> at(tile, a.tiles_across);
    const auto columns = a.source.columns(at.column, a.width);
    for (int r = 0; r < tile_pack; ++r) {
      typename Source::Row row = {};
      const bool there = at.row + r < a.height;
      if (there) a.source.load(row, at.row + r, at.column, a.width);
      float x[values][8];
      Eight<typename Source::Type, Source::vectors> rounded[values];
      a.numbers(row, columns, there && at.column < a.width, x, rounded);
      for (int v = 0; v < values; ++v)
        for (int i = 0; i < 8; ++i)
          if (at.column + i < a.width) seen[v].most = fmaxf(seen[v].most, fabsf(x[v][i]));
    }
  }
  for (int v = 0; v < values; ++v) {
    seen[v].most = warp_max(seen[v].most);
    if (threadIdx.x % 32 == 0 && a.quantizers[v].wanted() && !a.quantizers[v].is_known())
      seen[v].record(a.quantizers[v]);
  }
}

// Blocks of a multiprocessor.
template <class Source>
constexpr int tiles_resident = Source::values == 1 ? 3 : 2;

template <class Source>
__global__ void __launch_bounds__(ShapeOf<Quantizer>::threads, tiles_resident<Source>)
    quantize_tiles(const __grid_constant__ Tiles<Source, Quantizer> a) {
  wait_for_predecessors();
  using Shape = ShapeOf<Quantizer>;
  constexpr int values = Source::values;
  using T = typename Source::Type;
  using Row = typename Source::Row;
  using Columns = typename Source::Columns;
  __shared__ TurnedCodes<Shape> turned;
  __shared__ ColumnParts<Shape> parts;
  Scaling scaling[values];
  Seen seen[values];
#pragma unroll
  for (int v = 0; v < values; ++v) {
    const Quantizer& q = a.quantizers[v];
    scaling[v] = Scaling(q, Source::e5m2(v));
    if (q.history && q.scale && blockIdx.x == 0 && threadIdx.x == 0) *q.scale = 1.f / scaling[v].inverse;
  }
  CREST_DYNAMIC_SHARED(Pack<T>, staged);
  auto quantize = [&](const TilePlace<Shape>& at, const Columns& columns, const Row(&rows)[tile_pack]) {
    uint32_t codes[values][2][tile_pack];  // of four columns and a row
    float sums[values][8] = {};
#pragma unroll
    for (int r = 0; r < tile_pack; ++r) {
      const int64_t row = at.row + r;
      const bool there = row < a.height && at.column < a.width;
      float x[values][8];
      Eight<T, Source::vectors> rounded[values];
      a.numbers(rows[r], columns, there, x, rounded);
#pragma unroll
      for (int v = 0; v < values; ++v) {
        const Quantizer& q = a.quantizers[v];
        if (!Source::exact && a.stores[v] && there) rounded[v].store(a.stores[v] + row * a.width, at.column, a.width);
        if (a.sums[v])
#pragma unroll
          for (int i = 0; i < 8; ++i) sums[v][i] += x[v][i];
        uint32_t both[2] = {0, 0};
        if (q.wanted()) seen[v].quantize(x[v], scaling[v].inverse, Source::e5m2(v), both);
        codes[v][0][r] = both[0], codes[v][1][r] = both[1];
        if (q.rows && there)
          store_row_codes<Source::vectors>(q.rows + row * a.width + at.column, both, at.column, a.width);
      }
    }
#pragma unroll
    for (int v = 0; v < values; ++v) {
      if (a.quantizers[v].columns) turned.transpose(at, codes[v], a.quantizers[v].columns, a.width, a.pitch);
      if (a.sums[v]) {
        __syncthreads();
        parts.put(at, sums[v]);
        __syncthreads();
        if (threadIdx.x < Shape::columns) parts.write(at, int(threadIdx.x), a.sums[v], a.width);
      }
    }
  };
  CopiesAhead<Source, Quantizer>{staged}.each_tile(a, quantize);
#pragma unroll
  for (int v = 0; v < values; ++v)
    if (a.quantizers[v].history) seen[v].leave(a.quantizers[v], scaling[v]);
}

// Scales of blocks, found by all threads of the tile: of a value at a time.
template <class Shape>
struct BlockScales {
  static_assert(Shape::vector == tile_vector);
  static constexpr int pairs = 4;                                // of a thread's columns
  alignas(16) uint32_t parts[Shape::warps][Shape::columns / 2];  // the largest of columns in the rows of a warp
  float most[Shape::columns];                                    // of the tile
  float inverse[Shape::columns];

  // Before a barrier.
  __device__ void put(const TilePlace<Shape>& at, uint32_t (&magnitudes)[pairs]) {
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
#pragma unroll
      for (int d = Shape::across; d < 32; d *= 2)
        magnitudes[i] = larger_pair(magnitudes[i], __shfl_xor_sync(0xffffffffu, magnitudes[i], d));
    }
    if (threadIdx.x % 32 < Shape::across)
      *reinterpret_cast<uint4*>(&parts[threadIdx.x / 32][at.across * pairs]) =
          make_uint4(magnitudes[0], magnitudes[1], magnitudes[2], magnitudes[3]);
  }
  // After it, by one thread for each column, which then waits at another barrier.
  template <bool Squares>
  __device__ void find(const TilePlace<Shape>& at, int column, bool e5m2, const BlockQuantizer& q, int64_t width) {
    uint32_t pair = 0;
    for (int w = 0; w < Shape::warps; ++w) pair = larger_pair(pair, parts[w][column / 2]);
    const float m = column % 2 ? high_magnitude(pair) : low_magnitude(pair);
    if constexpr (Squares) {
      most[column] = m;
    } else {
      const int e = exponent_for(e5m2, m, 0);
      inverse[column] = power_of_two(-e);
      if (q.column_scales && at.left + column < width)
        q.column_scales[q.column_place(at.left + column, at.top)] = power_of_two(e);
    }
  }
  // Of the square of the tile: its largest magnitude, the same in all threads; one of them writes
  // its exponent. tiles_down: of the tensor.
  __device__ float of_square(const TilePlace<Shape>& at, bool e5m2, const BlockQuantizer& q, int64_t tiles_down,
                             int64_t tiles_across) const {
    float m = 0;
    for (int i = int(threadIdx.x) % 32; i < Shape::columns; i += 32) m = fmaxf(m, most[i]);
    m = warp_max(m);
    if (threadIdx.x == 0) {
      const int e = exponent_for(e5m2, m, 0);
      write_square(q.row_scales, q.row_place(at.top, at.left), at.left / Shape::columns, tiles_across, q.row_blocks, e);
      write_square(q.column_scales, q.column_place(at.left, at.top), at.top / tile_rows, tiles_down, q.column_blocks,
                   e);
    }
    return m;
  }
  // The last of a row of scales fills it up with zeros.
  __device__ static void write_square(float* scales, int64_t at, int64_t index, int64_t blocks, int64_t filled, int e) {
    if (!scales) return;
    scales[at] = power_of_two(e);
    for (int64_t i = index + 1; index + 1 == blocks && i < filled; ++i) scales[at + i - index] = 0;
  }
};

// The largest magnitudes of two blocks of rows, shared by `across` threads of a warp.
template <class Shape>
__device__ inline uint32_t pair_of_blocks(uint32_t pair) {
#pragma unroll
  for (int d = 1; d < Shape::across; d *= 2) pair = larger_pair(pair, __shfl_xor_sync(0xffffffffu, pair, d));
  return pair;
}
// Values of two rows in the halves of a word.
__device__ inline uint32_t pair_of_rows(uint32_t low, uint32_t high) {
  return larger_pair(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
}

// Two blocks of 512 threads, if each needs at most half of the registers and of the shared memory
// of a multiprocessor.
template <class Source>
constexpr int blocks_resident = Source::values == 1 && CopiesAhead<Source, BlockQuantizer>::bytes <= 64 * 1024 ? 2 : 1;

template <class Source, bool Squares>
__global__ void __launch_bounds__(ShapeOf<BlockQuantizer>::threads, blocks_resident<Source>)
    quantize_blocks(const __grid_constant__ Tiles<Source, BlockQuantizer> a) {
  wait_for_predecessors();
  using Shape = ShapeOf<BlockQuantizer>;
  static_assert(Shape::columns == tile_rows && Shape::across <= 32);
  constexpr int values = Source::values;
  using T = typename Source::Type;
  using Row = typename Source::Row;
  using Columns = typename Source::Columns;
  __shared__ TurnedCodes<Shape> turned;
  __shared__ ColumnParts<Shape> parts;
  __shared__ BlockScales<Shape> scales;
  Seen seen[values];
  CREST_DYNAMIC_SHARED(Pack<T>, staged);
  auto quantize = [&](const TilePlace<Shape>& at, const Columns& columns, const Row(&rows)[tile_pack]) {
    const bool inside = at.column < a.width;
    // The values, until their scales are known.
    Eight<T, Source::vectors> held[tile_pack][values];
#pragma unroll
    for (int r = 0; r < tile_pack; ++r) {
      if constexpr (Source::exact) {
        static_assert(values == 1);
        held[r][0] = Source::whole(rows[r]);
      } else {
        const bool there = inside && at.row + r < a.height;
        float x[values][8];
        a.numbers(rows[r], columns, there, x, held[r]);
#pragma unroll
        for (int v = 0; v < values; ++v)
          if (a.stores[v] && there) held[r][v].store(a.stores[v] + (at.row + r) * a.width, at.column, a.width);
      }
#pragma unroll
      for (int v = 0; v < values; ++v) held[r][v].forget_floats();
    }
#pragma unroll
    for (int v = 0; v < values; ++v) {
      const BlockQuantizer& q = a.quantizers[v];
      if (!q.wanted() && !a.sums[v]) continue;
      const bool e5m2 = Source::e5m2(v);
      if (q.columns || a.sums[v] || Squares) {
        if (q.columns || Squares) {
          uint32_t most[4];
#pragma unroll
          for (int r = 0; r < tile_pack; ++r) {
            uint32_t pairs[4];
            held[r][v].magnitudes(pairs);
#pragma unroll
            for (int i = 0; i < 4; ++i) most[i] = r ? larger_pair(most[i], pairs[i]) : pairs[i];
          }
          scales.put(at, most);
        }
        if (a.sums[v]) {
          float sums[8] = {};
#pragma unroll
          for (int r = 0; r < tile_pack; ++r) {
            float x[8];
            held[r][v].widen_to(x);
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[i] += x[i];
          }
          parts.put(at, sums);
        }
        __syncthreads();
        const int column = int(threadIdx.x) % Shape::columns;
        if (threadIdx.x < Shape::columns) {
          if (q.columns || Squares) scales.template find<Squares>(at, column, e5m2, q, a.width);
        } else if (threadIdx.x < 2 * Shape::columns) {
          if (a.sums[v]) parts.write(at, column, a.sums[v], a.width);
        }
        __syncthreads();
      }
      float square = 0;  // the largest magnitude
      if constexpr (Squares)
        square = scales.of_square(at, e5m2, q, (a.height + tile_rows - 1) / tile_rows, a.tiles_across);
      if (q.rows) {
        float most[tile_pack];
        if constexpr (Squares) {
          for (float& m : most) m = square;
        } else {
#pragma unroll
          for (int r = 0; r < tile_pack; r += 2) {
            uint32_t pairs[2][4];
            held[r][v].magnitudes(pairs[0]), held[r + 1][v].magnitudes(pairs[1]);
            const uint32_t both = pair_of_blocks<Shape>(pair_of_rows(largest_pair(pairs[0]), largest_pair(pairs[1])));
            most[r] = low_magnitude(both), most[r + 1] = high_magnitude(both);
          }
          // A thread writes the scale of a row.
          static_assert(tile_pack == 4 && tile_pack <= Shape::across);
          const float own = at.across < 2 ? (at.across ? most[1] : most[0]) : (at.across == 2 ? most[2] : most[3]);
          const int64_t row = at.row + at.across;
          if (q.row_scales && at.across < tile_pack && row < a.height)
            q.row_scales[q.row_place(row, at.left)] = power_of_two(exponent_for(e5m2, own, 0));
        }
#pragma unroll
        for (int r = 0; r < tile_pack; ++r) {
          float x[8];
          held[r][v].forget_floats(), held[r][v].widen_to(x);
          uint32_t codes[2];
          seen[v].quantize(x, power_of_two(-exponent_for(e5m2, most[r], 0)), e5m2, most[r], codes);
          if (inside && at.row + r < a.height)
            store_row_codes<Source::vectors>(q.rows + (at.row + r) * a.width + at.column, codes, at.column, a.width);
        }
      }
      if (q.columns) {
        float by[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
          by[i] = Squares ? power_of_two(-exponent_for(e5m2, square, 0)) : scales.inverse[at.in_tile(i)];
        uint32_t codes[2][tile_pack];
#pragma unroll
        for (int r = 0; r < tile_pack; ++r) {
          float x[8];
          held[r][v].forget_floats(), held[r][v].widen_to(x);
#pragma unroll
          for (int i = 0; i < 8; ++i) x[i] *= by[i];
          uint32_t both[2];
          eight_codes(x, 1.f, e5m2, both);
          codes[0][r] = both[0], codes[1][r] = both[1];
        }
        turned.put(at, codes);
        __syncthreads();
        turned.write(at, q.columns, a.width, a.pitch);
      }
    }
  };
  CopiesAhead<Source, BlockQuantizer>{staged}.each_tile(a, quantize);
#pragma unroll
  for (int v = 0; v < values; ++v)
    if (a.quantizers[v].rows) seen[v].leave(a.quantizers[v].counts);
}

}  // namespace crest::cuda
