// quantize, quantize_columns and amax_history, and linear_fp8 where cuBLASLt does not run it.
#include <cfloat>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/fp8.h"
#include "backend/cuda/kernel.h"
#include "comm/comm.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;
constexpr int tile_rows = 128, tile_columns = 64;  // 128 bytes of a transpose's row, 64 of the tensor's
constexpr int pack = 4, vector = 8;                // rows and columns of a thread
constexpr int groups = tile_rows / pack;           // a word of a transpose each
constexpr int blocks_per_multiprocessor = 6;
constexpr int most_partials = 1024;

__device__ inline bool usable(float amax) { return amax > 0.f && amax <= FLT_MAX; }

// Two numbers at once where the hardware does it; NaN has no sign there.
template <class F>
__device__ inline uint32_t to_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t both;
  if constexpr (std::is_same_v<F, float8_e4m3>)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  return both;
#else
  return uint32_t(to_float8<F>(low).bits) | uint32_t(to_float8<F>(high).bits) << 8;
#endif
}

// Largest magnitude of a part of x; NaN does not count. Nothing to do where the step before knows.
template <class T>
__global__ void __launch_bounds__(threads) partial_amax(const T* x, int64_t n, const float* history, float* partial) {
  wait_for_predecessors();
  if (usable(*history)) return;
  float most = 0;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < n; i += int64_t(gridDim.x) * threads)
    most = fmaxf(most, fabsf(widen(x[i])));
  most = block_max<threads>(most);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

struct QuantizeArgs {
  const void* x;
  uint8_t *rows, *columns;  // q and its transpose; either may be null
  int64_t height, width, pitch;
  int64_t tiles_across, tiles;
  const float* given_scale;  // quantize_columns; null: what follows
  const float* history;
  const float* partial;
  int partials, margin;
  float *scale, *record;
  unsigned long long* counts;
};

// The exponent of the scale, the same in every thread.
template <class F>
__device__ inline int exponent_of(const QuantizeArgs& a) {
  float before = *a.history;
  if (usable(before)) return scale_exponent<F>(before, a.margin);
  float most = 0;
  for (int i = int(threadIdx.x); i < a.partials; i += threads) most = fmaxf(most, a.partial[i]);
  most = block_max<threads>(most);
  return usable(most) ? scale_exponent<F>(most, 0) : 0;
}

// A thread converts 4 rows by 8 columns of a tile: 8 bytes of each row of q, and a word of 8 rows
// of the transpose, which goes through shared memory. V: columns that are read and written at once.
template <class T, class F, int V>
__global__ void __launch_bounds__(threads) quantize_tiles(const __grid_constant__ QuantizeArgs a) {
  wait_for_predecessors();
  __shared__ uint32_t turned[tile_columns][groups + 1];
  __shared__ float most_of[threads / 32];
  __shared__ unsigned lost_of[2][threads / 32];
  const auto* x = static_cast<const T*>(a.x);
  float inverse;
  if (a.given_scale) {
    inverse = 1.f / *a.given_scale;
  } else {
    int e = exponent_of<F>(a);
    inverse = power_of_two(-e);
    if (blockIdx.x == 0 && threadIdx.x == 0) *a.scale = power_of_two(e);
  }
  const int across = int(threadIdx.x) % (tile_columns / vector), group = int(threadIdx.x) / (tile_columns / vector);
  float most = 0;
  unsigned saturated = 0, vanished = 0;
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int64_t row = tile / a.tiles_across * tile_rows + group * pack;
    const int64_t first = tile % a.tiles_across * tile_columns, column = first + across * vector;
    float v[pack][vector];
#pragma unroll
    for (int r = 0; r < pack; ++r)
#pragma unroll
      for (int c = 0; c < vector; c += V) {
        Vec<T, V> loaded = {};
        if (row + r < a.height && column + c < a.width) loaded = load_vec<V>(x + (row + r) * a.width + column + c);
#pragma unroll
        for (int e = 0; e < V; ++e) v[r][c + e] = widen(loaded.x[e]);
      }
    uint32_t words[vector] = {};
#pragma unroll
    for (int r = 0; r < pack; ++r) {
      uint32_t codes[2] = {0, 0};  // of 8 columns
#pragma unroll
      for (int c = 0; c < vector; c += 2) {
        uint32_t both = to_codes<F>(v[r][c] * inverse, v[r][c + 1] * inverse);
        codes[c / 4] |= both << (c % 4 * 8);
        words[c] |= (both & 0xffu) << (8 * r);
        words[c + 1] |= (both >> 8) << (8 * r);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float value = v[r][c + e];
          most = fmaxf(most, fabsf(value));
          saturated += fabsf(value * inverse) > largest_of<F>();
          vanished += value != 0.f && ((both >> (8 * e)) & 0x7fu) == 0;
        }
      }
      if (!a.rows || row + r >= a.height) continue;
      uint8_t* to = a.rows + (row + r) * a.width + column;
      if constexpr (V == 1) {
        for (int c = 0; c < vector && column + c < a.width; ++c) to[c] = uint8_t(codes[c / 4] >> (c % 4 * 8));
      } else if (column < a.width) {
        store_vec(to, Vec<uint8_t, 8>{{uint8_t(codes[0]), uint8_t(codes[0] >> 8), uint8_t(codes[0] >> 16),
                                       uint8_t(codes[0] >> 24), uint8_t(codes[1]), uint8_t(codes[1] >> 8),
                                       uint8_t(codes[1] >> 16), uint8_t(codes[1] >> 24)}});
      }
    }
    if (!a.columns) continue;
    __syncthreads();  // the tile before has been read
#pragma unroll
    for (int c = 0; c < vector; ++c) turned[across * vector + c][group] = words[c];
    __syncthreads();
    // A warp writes a row of the transpose. Its pitch is a multiple of 16, so words are whole.
    const int64_t at = row - group * pack + int64_t(threadIdx.x % 32) * pack;
    for (int c = int(threadIdx.x) / 32; c < tile_columns; c += threads / 32)
      if (first + c < a.width && at < a.pitch)
        *reinterpret_cast<uint32_t*>(a.columns + (first + c) * a.pitch + at) = turned[c][threadIdx.x % 32];
  }
  if (a.given_scale) return;
  most = warp_max(most);
  for (int d = 16; d > 0; d /= 2) {
    saturated += __shfl_xor_sync(0xffffffffu, saturated, d);
    vanished += __shfl_xor_sync(0xffffffffu, vanished, d);
  }
  if (threadIdx.x % 32 == 0) {
    most_of[threadIdx.x / 32] = most;
    lost_of[0][threadIdx.x / 32] = saturated, lost_of[1][threadIdx.x / 32] = vanished;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  unsigned long long lost[2] = {0, 0};
  most = 0;
  for (int w = 0; w < threads / 32; ++w) {
    most = fmaxf(most, most_of[w]);
    lost[0] += lost_of[0][w], lost[1] += lost_of[1][w];
  }
  // Magnitudes are ordered as their bits; sums of whole numbers have no order.
  if (most > 0.f) atomicMax(reinterpret_cast<unsigned*>(a.record), float_bits(most));
  for (int k = 0; k < 2; ++k)
    if (lost[k]) atomicAdd(a.counts + k, lost[k]);
}

// One block.
__global__ void __launch_bounds__(threads)
    end_step(int slots, int ranks, float* amax, float* record, unsigned long long* counts, unsigned long long* lost) {
  wait_for_predecessors();
  __shared__ unsigned long long sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  for (int s = int(threadIdx.x); s < slots; s += threads) {
    float most = 0;
    for (int r = 0; r < ranks; ++r) {
      most = fmaxf(most, record[s * ranks + r]);
      record[s * ranks + r] = 0;
    }
    if (most <= FLT_MAX) amax[s] = most;
    for (int k = 0; k < 2; ++k) {
      if (counts[2 * s + k]) atomicAdd(&sums[k], counts[2 * s + k]);
      counts[2 * s + k] = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x < 2) lost[threadIdx.x] = sums[threadIdx.x];
}

struct ProductArgs {
  const void *x, *w;
  const float *x_scale, *w_scale;
  int64_t m, n, k, tiles_n;
};

constexpr int product_tile = 16;

// 16 by 16 results a block, one a thread: every GPU, and the emulator, runs it.
template <class X, class W, class C>
__global__ void __launch_bounds__(product_tile* product_tile)
    product(const __grid_constant__ ProductArgs a, const C* bias, const C* acc, C* y) {
  wait_for_predecessors();
  __shared__ float xs[product_tile][product_tile + 1], ws[product_tile][product_tile + 1];
  const int i = int(threadIdx.x) / product_tile, j = int(threadIdx.x) % product_tile;
  const int64_t row = blockIdx.x / a.tiles_n * product_tile, column = blockIdx.x % a.tiles_n * product_tile;
  auto* x = static_cast<const X*>(a.x);
  auto* weights = static_cast<const W*>(a.w);
  float sum = 0;
  for (int64_t k = 0; k < a.k; k += product_tile) {
    xs[i][j] = row + i < a.m && k + j < a.k ? to_float(x[(row + i) * a.k + k + j]) : 0.f;
    ws[i][j] = column + i < a.n && k + j < a.k ? to_float(weights[(column + i) * a.k + k + j]) : 0.f;
    __syncthreads();
#pragma unroll
    for (int l = 0; l < product_tile; ++l) sum += xs[i][l] * ws[j][l];
    __syncthreads();
  }
  if (row + i >= a.m || column + j >= a.n) return;
  const int64_t to = (row + i) * a.n + column + j;
  sum *= *a.x_scale * *a.w_scale;
  if (bias) sum += widen(bias[column + j]);
  if (acc) sum += widen(acc[to]);
  y[to] = narrow<C>(sum);
}

int amax_blocks(const Device& device, int64_t n) {
  return int(std::clamp<int64_t>(n / (threads * 16), 1, std::min(most_partials, device.multiprocessors * 4)));
}

void start_tiles(const KernelCall& c, QuantizeArgs a) {
  const Value& x = c.in_value(0);
  a.x = c.in[0];
  a.height = x.shape.rows(), a.width = x.shape.back(), a.pitch = fp8_padded(a.height);
  a.tiles_across = (a.width + tile_columns - 1) / tile_columns;
  a.tiles = a.tiles_across * ((a.height + tile_rows - 1) / tile_rows);
  auto blocks =
      unsigned(std::clamp<int64_t>(a.tiles, 1, int64_t(c.device->multiprocessors) * blocks_per_multiprocessor));
  with_type(x.dtype, [&](auto t) {
    with_float8(c.out_value(0).dtype, [&](auto f) {
      using T = decltype(t);
      using F = decltype(f);
      constexpr int V = Vec<T>::size;
      bool vectors = a.width % vector == 0 && aligned({a.x}) && (!a.rows || aligned({a.rows}, vector));
      launch(c, vectors ? quantize_tiles<T, F, V> : quantize_tiles<T, F, 1>, blocks, threads, 0, a);
    });
  });
}

void launch_quantize(const KernelCall& c) {
  namespace at = in::quantize;
  namespace to = out::quantize;
  const Attrs& attrs = c.instr.attrs;
  const Value& x = c.in_value(at::x);
  int64_t slot = attrs.integer("slot"), ranks = c.in_value(at::record).shape[1];
  QuantizeArgs a = {};
  a.rows = c.output<uint8_t>(to::q);
  if (c.instr.out.size() > to::t) a.columns = c.output<uint8_t>(to::t);
  a.history = c.input<float>(at::amax) + slot;
  a.partial = static_cast<const float*>(c.workspace);
  a.partials = amax_blocks(*c.device, x.numel());
  a.margin = int(attrs.integer("margin"));
  a.scale = c.output<float>(to::scale);
  a.record = c.output<float>(to::record) + slot * ranks + (c.communicator ? c.communicator->rank() : 0);
  a.counts = c.output<unsigned long long>(to::counts) + 2 * slot;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, partial_amax<T>, unsigned(a.partials), threads, 0, c.input<T>(at::x), x.numel(), a.history,
           static_cast<float*>(c.workspace));
  });
  start_tiles(c, a);
}

void launch_columns(const KernelCall& c) {
  QuantizeArgs a = {};
  a.columns = c.output<uint8_t>(out::quantize_columns::t);
  a.given_scale = c.input<float>(in::quantize_columns::scale);
  start_tiles(c, a);
}

void launch_history(const KernelCall& c) {
  namespace to = out::amax_history;
  launch(c, end_step, 1, threads, 0, int(c.in_value(in::amax_history::amax).numel()),
         int(c.in_value(in::amax_history::record).shape[1]), c.output<float>(to::amax), c.output<float>(to::record),
         c.output<unsigned long long>(to::counts), c.output<unsigned long long>(to::lost));
}

// The tables and scales are f32.
std::string reject_scales(const KernelQuery& q, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i)
    if (q.has(i) && q.in(i).dtype != DType::f32) return "takes scales of f32";
  return "";
}

std::string reject_quantize(const KernelQuery& q) {
  namespace at = in::quantize;
  if (std::string why = reject_value(q.in(at::x)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0) return "an empty operand";
  return reject_scales(q, at::amax, at::record);
}
std::string reject_columns(const KernelQuery& q) {
  namespace at = in::quantize_columns;
  if (std::string why = reject_value(q.in(at::x)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0) return "an empty operand";
  return reject_scales(q, at::scale, at::scale);
}
std::string reject_history(const KernelQuery& q) {
  return reject_scales(q, in::amax_history::amax, in::amax_history::record);
}
size_t quantize_workspace(const KernelQuery& q) {
  return size_t(amax_blocks(q.device, q.in(in::quantize::x).numel())) * sizeof(float);
}

}  // namespace

std::string reject_fp8_product(const KernelQuery& q) {
  namespace at = in::linear_fp8;
  if (std::string why = reject_scales(q, at::x_scale, at::w_scale); !why.empty()) return why;
  const Value& y = q.out(out::linear_fp8::y);
  if (std::string why = reject_value(y); !why.empty()) return why;
  if (q.has(at::b) && q.in(at::b).dtype != y.dtype) return "takes a bias of the result's dtype";
  if (q.has(at::acc) && q.in(at::acc).dtype != y.dtype) return "takes an accumulator of the result's dtype";
  if (q.in(at::x).numel() == 0 || q.in(at::w).numel() == 0) return "empty operands";
  int64_t tiles = (q.in(at::x).shape.rows() + product_tile - 1) / product_tile;
  if (tiles * ((q.in(at::w).shape[0] + product_tile - 1) / product_tile) >= int64_t(1) << 31) return "2^31 tiles";
  return "";
}

#if CREST_HAS_DEVICE_CODE
void launch_fp8_tiled(const KernelCall& c) {
  namespace at = in::linear_fp8;
  ProductArgs a = {};
  a.x = c.in[at::x], a.w = c.in[at::w];
  a.x_scale = c.input<float>(at::x_scale), a.w_scale = c.input<float>(at::w_scale);
  a.m = c.in_value(at::x).shape.rows(), a.n = c.in_value(at::w).shape[0], a.k = c.in_value(at::w).shape[1];
  a.tiles_n = (a.n + product_tile - 1) / product_tile;
  auto blocks = unsigned((a.m + product_tile - 1) / product_tile * a.tiles_n);
  with_float8(c.in_value(at::x).dtype, [&](auto x) {
    with_float8(c.in_value(at::w).dtype, [&](auto w) {
      with_type(c.out_value(0).dtype, [&](auto y) {
        using C = decltype(y);
        launch(c, product<decltype(x), decltype(w), C>, blocks, product_tile * product_tile, 0, a,
               c.has(at::b) ? c.input<C>(at::b) : nullptr, c.has(at::acc) ? c.input<C>(at::acc) : nullptr,
               c.output<C>(0));
      });
    });
  });
}

namespace {
// Bytes that are numbers of magnitude 1 to 2 in both formats, with either sign: what algorithms are
// timed on.
__global__ void fill_codes(uint8_t* x, int64_t n, uint32_t seed) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t bits = uint32_t(i) * 0x9e3779b9u + seed * 0x85ebca6bu;
  bits = (bits ^ (bits >> 15)) * 0x735a2d97u;
  if (i < n) x[i] = uint8_t(((bits >> 9) & 0x80u) | 0x38u | ((bits >> 20) & 7u));
}
}  // namespace

void launch_fp8_numbers(const KernelCall& call, void* x, int64_t n, uint32_t seed) {
  if (n > 0) launch(call, fill_codes, blocks_for(n, 256), 256, 0, static_cast<uint8_t*>(x), n, seed);
}
#endif

Kernel quantize_kernel() {
  return {"quantize",      "cuda.quantize.tiles",
          reject_quantize, quantize_workspace,
          nullptr,         CREST_DEVICE_CODE(launch_quantize)};
}
Kernel quantize_columns_kernel() {
  return {"quantize_columns",
          "cuda.quantize_columns.tiles",
          reject_columns,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_columns)};
}
Kernel amax_history_kernel() {
  return {"amax_history", "cuda.amax_history", reject_history, nullptr, nullptr, CREST_DEVICE_CODE(launch_history)};
}
Kernel linear_fp8_tiled_kernel() {
  return {
      "linear_fp8", "cuda.linear_fp8.tiled", reject_fp8_product, nullptr, nullptr, CREST_DEVICE_CODE(launch_fp8_tiled)};
}

}  // namespace crest::cuda
