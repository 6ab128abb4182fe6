// linear_fp8 where cuBLASLt does not run it, and the end of a step for its scales: amax_history and
// take_counts.
#include <cfloat>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/fp8.h"
#include "backend/cuda/kernel.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;

// One block. amax: [steps][slots]; the first row is the largest of the others and of this step, the
// others are the steps before.
__global__ void __launch_bounds__(threads) end_step(int steps, int slots, int ranks, float* amax, float* record,
                                                    unsigned long long* counts, unsigned long long* lost) {
  wait_for_predecessors();
  for (int s = int(threadIdx.x); s < slots; s += threads) {
    float step = 0, most = 0;
    for (int r = 0; r < ranks; ++r) {
      step = fmaxf(step, record[s * ranks + r]);
      record[s * ranks + r] = 0;
    }
    if (!(step <= FLT_MAX)) step = amax[s];
    for (int h = steps - 1; h > 0; --h) {
      most = fmaxf(most, amax[h * slots + s]);
      amax[h * slots + s] = h > 1 ? amax[(h - 1) * slots + s] : step;
    }
    amax[s] = fmaxf(most, step);
    for (int k = 0; k < 2; ++k) {
      lost[2 * s + k] = counts[2 * s + k];
      counts[2 * s + k] = 0;
    }
  }
}

__global__ void __launch_bounds__(threads)
    move_counts(int64_t n, unsigned long long* counts, unsigned long long* lost) {
  wait_for_predecessors();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) lost[i] = counts[i], counts[i] = 0;
}

struct ProductArgs {
  const void *x, *w;
  const float *x_scale, *w_scale;
  Fp8ScalePlace x_place, w_place;
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
    auto load = [&](const auto* from, const float* scale, const Fp8ScalePlace& place, int64_t index, int64_t rows) {
      const bool there = index < rows && k + j < a.k;
      return there ? to_float(from[index * a.k + k + j]) * scale[place(index, k + j)] : 0.f;
    };
    xs[i][j] = load(x, a.x_scale, a.x_place, row + i, a.m);
    ws[i][j] = load(weights, a.w_scale, a.w_place, column + i, a.n);
    __syncthreads();
#pragma unroll
    for (int l = 0; l < product_tile; ++l) sum += xs[i][l] * ws[j][l];
    __syncthreads();
  }
  if (row + i >= a.m || column + j >= a.n) return;
  const int64_t to = (row + i) * a.n + column + j;
  if (bias) sum += widen(bias[column + j]);
  if (acc) sum += widen(acc[to]);
  y[to] = narrow<C>(sum);
}

void launch_history(const KernelCall& c) {
  namespace to = out::amax_history;
  const Value& amax = c.in_value(in::amax_history::amax);
  launch(c, end_step, 1, threads, 0, int(amax.shape[0]), int(amax.shape[1]),
         int(c.in_value(in::amax_history::record).shape[1]), c.output<float>(to::amax), c.output<float>(to::record),
         c.output<unsigned long long>(to::counts), c.output<unsigned long long>(to::lost));
}

void launch_take_counts(const KernelCall& c) {
  namespace to = out::take_counts;
  const int64_t n = c.out_value(to::counts).numel();
  launch(c, move_counts, blocks_for(n, threads), threads, 0, n, c.output<unsigned long long>(to::counts),
         c.output<unsigned long long>(to::lost));
}

std::string reject_history(const KernelQuery& q) {
  namespace at = in::amax_history;
  return q.in(at::amax).dtype == DType::f32 && q.in(at::record).dtype == DType::f32 ? "" : "takes scales of f32";
}
std::string reject_counts(const KernelQuery& q) {
  return q.in(in::take_counts::counts).numel() == 0 ? "an empty operand" : "";
}

}  // namespace

std::string reject_fp8_product(const KernelQuery& q) {
  namespace at = in::linear_fp8;
  for (size_t i : {size_t(at::x_scale), size_t(at::w_scale)})
    if (q.in(i).dtype != DType::f32) return "takes scales of f32";
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
  const Fp8Blocks of_w = fp8_blocks(c.instr.attrs);
  a.x_place = {fp8_blocks_of_x(of_w), c.in_value(at::x_scale).shape};
  a.w_place = {of_w, c.in_value(at::w_scale).shape};
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
// Bytes with magnitude 1 to 2 in both formats,
// with either sign: data for timing algorithms.
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

Kernel amax_history_kernel() {
  return {"amax_history", "cuda.amax_history", reject_history, nullptr, nullptr, CREST_DEVICE_CODE(launch_history)};
}
Kernel take_counts_kernel() {
  return {"take_counts", "cuda.take_counts", reject_counts, nullptr, nullptr, CREST_DEVICE_CODE(launch_take_counts)};
}
Kernel linear_fp8_tiled_kernel() {
  return {
      "linear_fp8", "cuda.linear_fp8.tiled", reject_fp8_product, nullptr, nullptr, CREST_DEVICE_CODE(launch_fp8_tiled)};
}

}  // namespace crest::cuda
