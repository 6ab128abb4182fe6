// Quantization to 8-bit floats inside of kernels: scales, conversion with counters, and tiles that
// are written with their transposes.
#pragma once
#include <cfloat>

#include "backend/cuda/device/rows_copy.h"
#include "backend/cuda/device/rows_pack.h"
#include "core/float8.h"

namespace crest::cuda {

// Where a tensor goes, and what it is scaled by.
struct Quantizer {
  uint8_t *rows = nullptr, *columns = nullptr;  // q and its transpose; either may be null
  const float* given_scale = nullptr;           // null: what follows
  const float* history = nullptr;               // the largest magnitude in the step before; 0: none is known
  int margin = 0;
  float *scale = nullptr, *record = nullptr;
  unsigned long long* counts = nullptr;

  __device__ bool wanted() const { return given_scale || history; }
  __device__ bool is_known() const { return given_scale || is_magnitude(*history); }
  __device__ static bool is_magnitude(float amax) { return amax > 0.f && amax <= FLT_MAX; }
};

// What a kernel reads of a quantizer when it begins; the same in all its threads.
struct Scaling {
  float inverse = 0;   // 1 / scale
  float recorded = 0;  // the largest magnitude that was recorded before
  bool records = false;

  Scaling() = default;
  __device__ Scaling(const Quantizer& q, bool e5m2) {
    if (q.given_scale) inverse = 1.f / *q.given_scale;
    if (!q.history) return;
    // Where nothing is known of the step before, another kernel has recorded this tensor's
    // magnitudes.
    const float before = *q.history;
    recorded = *static_cast<const volatile float*>(q.record);
    records = Quantizer::is_magnitude(before);
    const float amax = records ? before : recorded;
    const int margin = records ? q.margin : 0;
    const int e = e5m2 ? scale_exponent<float8_e5m2>(amax, margin) : scale_exponent<float8_e4m3>(amax, margin);
    inverse = power_of_two(Quantizer::is_magnitude(amax) ? -e : 0);
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

// What a thread has seen of a tensor.
struct Seen {
  float most = 0;
  unsigned saturated = 0, vanished = 0;

  // Eight numbers, as two words of codes.
  __device__ void quantize(const float (&x)[8], float inverse, bool e5m2, uint32_t (&codes)[2]) {
    codes[0] = codes[1] = 0;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      codes[i / 4] |= to_codes(e5m2, x[i] * inverse, x[i + 1] * inverse) << (i % 4 * 8);
      largest = fmaxf(largest, fmaxf(fabsf(x[i]), fabsf(x[i + 1])));
    }
    most = fmaxf(most, largest);
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
    for (int d = 16; d > 0; d /= 2) {
      saturated += __shfl_xor_sync(0xffffffffu, saturated, d);
      vanished += __shfl_xor_sync(0xffffffffu, vanished, d);
    }
    if (threadIdx.x % 32) return;
    // What is complete already may be the scale that other blocks read.
    if (scaling.records && most > scaling.recorded) record(q);
    if (saturated) atomicAdd(q.counts, static_cast<unsigned long long>(saturated));
    if (vanished) atomicAdd(q.counts + 1, static_cast<unsigned long long>(vanished));
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
};

constexpr int tile_threads = 256;
constexpr int tile_rows = 128, tile_columns = 64;   // 128 bytes of a transpose's row
constexpr int tile_pack = 4, tile_vector = 8;       // rows and columns of a thread
constexpr int tile_groups = tile_rows / tile_pack;  // a word of a transpose each

// A kernel over the tiles of what Source makes: `values` tensors of type T, element by element,
// each of which may be quantized, written as it is and summed by columns. Source has
//   Type, values, e5m2(value), exact: whether the values need no rounding to Type; they are then
//     not written
//   Row, Columns: what is read of a row's eight numbers, and what belongs to their columns
//   columns(column, width), compute(row, columns, x[values][8]), and where it is needed
//     load(row, index, column, width)
//   vectors: whether rows are read in vectors of 16 bytes, `packs` of them; then also
//     address(pack, index, column, width), take(row, pack, value), and rest(row, index) for what
//     is not in packs
template <class Source>
struct Tiles {
  using T = typename Source::Type;
  static constexpr int values = Source::values;
  Source source;
  Quantizer quantizers[values];
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
struct TilePlace {
  int across = int(threadIdx.x) % (tile_columns / tile_vector), group = int(threadIdx.x) / (tile_columns / tile_vector);
  int64_t top, left, row, column;
  __device__ TilePlace(int64_t tile, int64_t tiles_across)
      : top(tile / tiles_across * tile_rows),
        left(tile % tiles_across * tile_columns),
        row(top + group * tile_pack),
        column(left + across * tile_vector) {}
};

// Magnitudes of what nothing is known of from the step before.
template <class Source>
__global__ void __launch_bounds__(tile_threads) record_tiles(const __grid_constant__ Tiles<Source> a) {
  wait_for_predecessors();
  bool known = true;
  for (int v = 0; v < a.values; ++v) known = known && (!a.quantizers[v].wanted() || a.quantizers[v].is_known());
  if (known) return;
  Seen seen[Tiles<Source>::values];
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    TilePlace at(tile, a.tiles_across);
    const auto columns = a.source.columns(at.column, a.width);
    for (int r = 0; r < tile_pack; ++r) {
      typename Source::Row row = {};
      const bool there = at.row + r < a.height;
      if (there) a.source.load(row, at.row + r, at.column, a.width);
      float x[Tiles<Source>::values][8];
      Eight<typename Source::Type, Source::vectors> rounded[Tiles<Source>::values];
      a.numbers(row, columns, there && at.column < a.width, x, rounded);
      for (int v = 0; v < a.values; ++v)
        for (int i = 0; i < 8; ++i)
          if (at.column + i < a.width) seen[v].most = fmaxf(seen[v].most, fabsf(x[v][i]));
    }
  }
  for (int v = 0; v < a.values; ++v) {
    seen[v].most = warp_max(seen[v].most);
    if (threadIdx.x % 32 == 0 && a.quantizers[v].wanted() && !a.quantizers[v].is_known())
      seen[v].record(a.quantizers[v]);
  }
}

// Blocks of a multiprocessor.
template <class Source>
constexpr int tiles_resident = Source::values == 1 ? 3 : 2;

template <class Source>
__global__ void __launch_bounds__(tile_threads, tiles_resident<Source>)
    quantize_tiles(const __grid_constant__ Tiles<Source> a) {
  wait_for_predecessors();
  constexpr int values = Source::values;
  using T = typename Source::Type;
  __shared__ uint32_t turned[tile_columns][tile_groups + 1];
  __shared__ float parts[tile_threads / 32][tile_columns];
  Scaling scaling[values];
  Seen seen[values];
#pragma unroll
  for (int v = 0; v < values; ++v) {
    const Quantizer& q = a.quantizers[v];
    scaling[v] = Scaling(q, Source::e5m2(v));
    if (q.history && q.scale && blockIdx.x == 0 && threadIdx.x == 0) *q.scale = 1.f / scaling[v].inverse;
  }
  // A thread copies its vectors of the next tile to its own places in shared memory while it works
  // on the present one: no barrier, and copies in flight cost no registers.
  CREST_DYNAMIC_SHARED(Pack<T>, staged);
  auto place = [&](int stage, int r, int pack) {
    return staged + ((stage * tile_pack + r) * Source::packs + pack) * tile_threads + threadIdx.x;
  };
  auto fetch = [&](int64_t tile, int stage) {
    if constexpr (Source::vectors) {
      TilePlace at(tile, a.tiles_across);
      if (tile < a.tiles && at.column < a.width)
#pragma unroll
        for (int r = 0; r < tile_pack; ++r)
          if (at.row + r < a.height)
#pragma unroll
            for (int i = 0; i < Source::packs; ++i)
              copy_async(place(stage, r, i), a.source.address(i, at.row + r, at.column, a.width));
      commit_copies();
    }
  };
  fetch(blockIdx.x, 0);
  int stage = 0;
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x, stage ^= 1) {
    TilePlace at(tile, a.tiles_across);
    fetch(tile + gridDim.x, stage ^ 1);
    const auto columns = a.source.columns(at.column, a.width);
    typename Source::Row rows[tile_pack] = {};
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
        if (!q.rows || !there) continue;
        uint8_t* to = q.rows + row * a.width + at.column;
        if constexpr (Source::vectors)
          *reinterpret_cast<uint2*>(to) = make_uint2(both[0], both[1]);
        else
          for (int i = 0; i < 8 && at.column + i < a.width; ++i) to[i] = uint8_t(both[i / 4] >> (i % 4 * 8));
      }
    }
#pragma unroll
    for (int v = 0; v < values; ++v) {
      if (a.quantizers[v].columns) {
        transpose_codes(codes[v][0]), transpose_codes(codes[v][1]);
        __syncthreads();  // the one before has been read
#pragma unroll
        for (int c = 0; c < tile_vector; ++c) turned[at.across * tile_vector + c][at.group] = codes[v][c / 4][c % 4];
        __syncthreads();
        // A warp writes a row of the transpose. Its pitch is a multiple of 16, so words are whole.
        const int64_t first = at.top + int64_t(threadIdx.x % 32) * tile_pack;
        for (int c = int(threadIdx.x) / 32; c < tile_columns; c += tile_threads / 32)
          if (at.left + c < a.width && first < a.pitch)
            *reinterpret_cast<uint32_t*>(a.quantizers[v].columns + (at.left + c) * a.pitch + first) =
                turned[c][threadIdx.x % 32];
      }
      if (a.sums[v]) {
        // The four groups of a warp, then the warps, in order.
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float sum = sums[v][i];
          sum += __shfl_xor_sync(0xffffffffu, sum, 8);
          sum += __shfl_xor_sync(0xffffffffu, sum, 16);
          if (threadIdx.x % 32 < 8) parts[threadIdx.x / 32][at.across * tile_vector + i] = sum;
        }
        __syncthreads();
        if (threadIdx.x < tile_columns && at.left + threadIdx.x < a.width) {
          float sum = 0;
          for (int w = 0; w < tile_threads / 32; ++w) sum += parts[w][threadIdx.x];
          a.sums[v][at.top / tile_rows * a.width + at.left + threadIdx.x] = sum;
        }
      }
    }
  }
#pragma unroll
  for (int v = 0; v < values; ++v)
    if (a.quantizers[v].history) seen[v].leave(a.quantizers[v], scaling[v]);
}

}  // namespace crest::cuda
