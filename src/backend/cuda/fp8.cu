// quantize, quantize_columns, norm_quantize_columns and amax_history, and linear_fp8 where cuBLASLt
// does not run it.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/fp8.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/quantize.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;

// A tensor as it is.
template <class T, bool E5m2, bool Vectors>
struct Copy {
  using Type = T;
  static constexpr bool vectors = Vectors, exact = true;
  static constexpr int values = 1;
  __host__ __device__ static constexpr bool e5m2(int) { return E5m2; }
  using Row = Eight<T, Vectors>;
  struct Columns {};
  const T* x;
  __device__ Columns columns(int64_t, int64_t) const { return {}; }
  __device__ void load(Row& row, int64_t index, int64_t column, int64_t width) const {
    row.load(x + index * width, column, width);
  }
  static constexpr int packs = 8 / Pack<T>::size;
  __device__ const T* address(int pack, int64_t index, int64_t column, int64_t width) const {
    return x + index * width + column + pack * Pack<T>::size;
  }
  __device__ static void take(Row& row, int pack, const Pack<T>& value) { row.pack[pack] = value; }
  __device__ static void rest(Row&, int64_t) {}
  __device__ void compute(const Row& row, const Columns&, float (&y)[1][8]) const { row.widen_to(y[0]); }
};

// A norm of rows whose statistics are given.
struct Normalised {
  using T = bfloat16;
  using Type = T;
  static constexpr bool vectors = true, exact = false;
  static constexpr int values = 1;
  __host__ __device__ static constexpr bool e5m2(int) { return false; }
  struct Row {
    Eight<T, true> x;
    float mean, rstd;
  };
  struct Columns {
    float gamma[8], beta[8];
  };
  const T *x, *gamma, *beta;  // beta may be null
  const float *rstd, *mean;   // mean: null for rms
  __device__ Columns columns(int64_t column, int64_t width) const {
    Columns c = {};
    Eight<T, true> weights = {};
    weights.load(gamma, column, width), weights.widen_to(c.gamma);
    weights = {};
    if (beta) weights.load(beta, column, width), weights.widen_to(c.beta);
    return c;
  }
  static constexpr int packs = 1;
  __device__ const T* address(int, int64_t index, int64_t column, int64_t width) const {
    return x + index * width + column;
  }
  __device__ static void take(Row& row, int, const Pack<T>& value) { row.x.pack[0] = value; }
  __device__ void rest(Row& row, int64_t index) const { row.mean = mean ? mean[index] : 0.f, row.rstd = rstd[index]; }
  __device__ void compute(const Row& row, const Columns& of, float (&y)[1][8]) const {
    row.x.widen_to(y[0]);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[0][i] = (y[0][i] - row.mean) * row.rstd * of.gamma[i] + of.beta[i];
  }
};

// One block. amax: [steps][slots], of which the first row is the largest of the others and of this
// step, and the others are those of the steps before.
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

void copy_tiles(const KernelCall& c, DType format, const Quantizer& q) {
  const Value& x = c.in_value(0);
  const bool vectors = x.shape.back() % tile_vector == 0 && aligned({c.in[0]}) && (!q.rows || aligned({q.rows}, 8));
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    auto run = [&](auto source) {
      source.x = c.input<T>(0);
      Tiles<decltype(source)> a = {};
      a.source = source, a.quantizers[0] = q;
      start_tiles(c, a, x);
    };
    const bool e5m2 = format == DType::e5m2;
    if (vectors && e5m2) return run(Copy<T, true, true>());
    if (vectors) return run(Copy<T, false, true>());
    if (e5m2) return run(Copy<T, true, false>());
    run(Copy<T, false, false>());
  });
}

void launch_quantize(const KernelCall& c) {
  namespace to = out::quantize;
  Quantizer q = quantizer_of(c, c.instr.attrs, in::quantize::amax, to::q);
  if (c.instr.out.size() > to::t) q.columns = c.output<uint8_t>(to::t);
  copy_tiles(c, c.out_value(0).dtype, q);
}

void launch_columns(const KernelCall& c) {
  Quantizer q;
  q.columns = c.output<uint8_t>(out::quantize_columns::t);
  q.given_scale = c.input<float>(in::quantize_columns::scale);
  copy_tiles(c, c.out_value(0).dtype, q);
}

void launch_norm_columns(const KernelCall& c) {
  namespace at = in::norm_quantize_columns;
  using T = bfloat16;
  Tiles<Normalised> a = {};
  a.quantizers[0].columns = c.output<uint8_t>(0);
  a.quantizers[0].given_scale = c.input<float>(at::scale);
  Normalised& n = a.source;
  n.x = c.input<T>(at::x), n.gamma = c.input<T>(at::gamma), n.rstd = c.input<float>(at::rstd);
  if (c.has(at::beta)) n.beta = c.input<T>(at::beta);
  if (c.has(at::mean)) n.mean = c.input<float>(at::mean);
  start_tiles<Normalised, false>(c, a, c.in_value(at::x));
}

void launch_history(const KernelCall& c) {
  namespace to = out::amax_history;
  const Value& amax = c.in_value(in::amax_history::amax);
  launch(c, end_step, 1, threads, 0, int(amax.shape[0]), int(amax.shape[1]),
         int(c.in_value(in::amax_history::record).shape[1]), c.output<float>(to::amax), c.output<float>(to::record),
         c.output<unsigned long long>(to::counts), c.output<unsigned long long>(to::lost));
}

std::string reject_quantize(const KernelQuery& q) {
  namespace at = in::quantize;
  if (std::string why = reject_value(q.in(at::x)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0) return "an empty operand";
  return reject_scales(q, {at::amax, at::record});
}
std::string reject_columns(const KernelQuery& q) {
  namespace at = in::quantize_columns;
  if (std::string why = reject_value(q.in(at::x)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0) return "an empty operand";
  return reject_scales(q, {at::scale});
}
std::string reject_norm_columns(const KernelQuery& q) {
  namespace at = in::norm_quantize_columns;
  if (std::string why = reject_norm_of_rows(q, {at::x, at::gamma, at::beta}); !why.empty()) return why;
  return reject_scales(q, {at::scale, at::rstd, at::mean});
}
std::string reject_history(const KernelQuery& q) {
  return reject_scales(q, {in::amax_history::amax, in::amax_history::record});
}

}  // namespace

std::string reject_fp8_product(const KernelQuery& q) {
  namespace at = in::linear_fp8;
  if (std::string why = reject_scales(q, {at::x_scale, at::w_scale}); !why.empty()) return why;
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
  return {"quantize", "cuda.quantize.tiles", reject_quantize, nullptr, nullptr, CREST_DEVICE_CODE(launch_quantize)};
}
Kernel quantize_columns_kernel() {
  return {"quantize_columns",
          "cuda.quantize_columns.tiles",
          reject_columns,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_columns)};
}
Kernel norm_quantize_columns_kernel() {
  return {"norm_quantize_columns",
          "cuda.norm_quantize_columns.tiles",
          reject_norm_columns,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_norm_columns)};
}
Kernel amax_history_kernel() {
  return {"amax_history", "cuda.amax_history", reject_history, nullptr, nullptr, CREST_DEVICE_CODE(launch_history)};
}
Kernel linear_fp8_tiled_kernel() {
  return {
      "linear_fp8", "cuda.linear_fp8.tiled", reject_fp8_product, nullptr, nullptr, CREST_DEVICE_CODE(launch_fp8_tiled)};
}

}  // namespace crest::cuda
