// norm, add_norm and norm_quantize, with dropout of the second summand or without: one pass over
// memory. A row stays in registers between its mean, its variance (of the differences from this
// mean: no cancellation) and its output: numbers, or 8-bit floats with a scale of the tensor or of
// each block.
#include "backend/cuda/device/dropout.h"
#include "backend/cuda/device/platform.h"
#include "backend/cuda/device/rows_slice.h"
#include "backend/cuda/dropout.h"
#include "backend/cuda/quantize.h"
#include "backend/cuda/rows.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cuda {

namespace {

// The summand of a: nothing, b, or b after dropout.
enum class Sum { none, plain, dropped };

struct NoQuantizer {};

// x = a (+ b, then also written to s); y = norm(x), or e4m3 in its place, if there is a quantizer.
// mean is null for rms; gamma (ones) and beta (zeros) may be null.
template <class T, class Scales = NoQuantizer>
struct Norm {
  const T *a, *b, *gamma, *beta;
  T *s, *y;
  float *rstd, *mean;
  int64_t rows;
  int cols;
  float inverse_cols, eps;
  DropoutRows dropout;  // of b
  Scales quantizer;
};

template <class T, int K, int Threads, Sum Added, class Scales>
__global__ void __launch_bounds__(Threads* rows_a_block(Threads)) norm_rows(Norm<T, Scales> p) {
  wait_for_predecessors();
  Scaling scaling;
  Seen seen;
  if constexpr (std::is_same_v<Scales, Quantizer>) {
    scaling = Scaling(p.quantizer, false);
    if (blockIdx.x == 0 && threadIdx.x == 0) *p.quantizer.scale = 1.f / scaling.inverse;
  }
  constexpr bool Add = Added != Sum::none;
  using Slice = RowSlice<T, K, Threads>;
  constexpr int N = Slice::N;
  Slice slice(p.cols);
  if (slice.row >= p.rows) return;  // a whole warp: rows shared by a block have exactly one block
  Pack<T> a[K], b[K];
  slice.load(a, p.a + slice.begin);
  if constexpr (Add) slice.load(b, p.b + slice.begin);
  if constexpr (Added == Sum::dropped) {
    const DropoutSpan span(p.dropout, slice.row, p.cols);
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (slice.has(k)) {
        float y[N];
        b[k].widen_to(y);
        span.drop(y, unsigned(slice.column + k * Threads * N));
        b[k] = Pack<T>::narrowed(y);
      }
  }
  float x[K][N], sum = 0, squares = 0, mean = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    a[k].widen_to(x[k]);
    if constexpr (Add) {
      float y[N];
      b[k].widen_to(y);
#pragma unroll
      for (int j = 0; j < N; ++j) x[k][j] += y[j];
      a[k] = Pack<T>::narrowed(x[k]);
      slice.store(p.s + slice.begin, k, a[k]);
      a[k].widen_to(x[k]);  // the norm of the rounded sum
    }
    float part = 0;  // a chain of additions for each vector: shorter than one for all
#pragma unroll
    for (int j = 0; j < N; ++j) part += x[k][j];
    sum += part;
  }
  if (p.mean) mean = Slice::sum(sum) * p.inverse_cols;
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (slice.has(k)) {
      float part = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) x[k][j] -= mean, part += x[k][j] * x[k][j];
      squares += part;
    }
  float rstd = rsqrtf(Slice::sum(squares) * p.inverse_cols + p.eps);
  if (slice.first()) {
    if (p.mean) p.mean[slice.row] = mean;
    p.rstd[slice.row] = rstd;
  }
  if (p.gamma) {
    slice.load(a, p.gamma + slice.column);
  } else {
#pragma unroll
    for (int k = 0; k < K; ++k) a[k] = pack_of<T>(1.f);
  }
  if (p.beta) slice.load(b, p.beta + slice.column);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float gamma[N], beta[N] = {};
    a[k].widen_to(gamma);
    if (p.beta) b[k].widen_to(beta);
#pragma unroll
    for (int j = 0; j < N; ++j) x[k][j] = x[k][j] * rstd * gamma[j] + beta[j];
    const Pack<T> y = Pack<T>::narrowed(x[k]);
    if constexpr (std::is_same_v<Scales, NoQuantizer>) {
      slice.store(p.y + slice.begin, k, y);
    } else {
      static_assert(N == 8);
      const bool there = slice.has(k);
      if (std::is_same_v<Scales, Quantizer> && !there) continue;
      y.widen_to(x[k]);
      uint32_t codes[2];
      if constexpr (std::is_same_v<Scales, Quantizer>) {
        seen.quantize(x[k], scaling.inverse, false, codes);
      } else {  // all threads sharing a block must come, with zeros for missing values
        const uint32_t pair = there ? largest_pair(y.w) : 0;
        const float most = low_magnitude(pair_of_blocks<ShapeOf<Scales>>(pair_of_rows(pair, 0)));
        if (!there) continue;
        const int e = exponent_for(false, most, 0), column = slice.column + k * Threads * N;
        if (column % int(fp8_block) == 0)
          p.quantizer.row_scales[p.quantizer.row_place(slice.row, column)] = power_of_two(e);
        seen.quantize(x[k], power_of_two(-e), false, most, codes);
      }
      *reinterpret_cast<uint2*>(p.quantizer.rows + slice.begin + k * Threads * N) = make_uint2(codes[0], codes[1]);
    }
  }
  if constexpr (std::is_same_v<Scales, Quantizer>) seen.leave(p.quantizer, scaling);
  if constexpr (std::is_same_v<Scales, BlockQuantizer>) seen.leave(p.quantizer.counts);
}

// Element c of a row of a + b; its first element is `begin`.
template <class T, class Scales>
__device__ inline T sum_at(const Norm<T, Scales>& p, const DropoutSpan& dropout, int64_t begin, int c) {
  float b = widen(p.b[begin + c]);
  if (dropout) b = widen(narrow<T>(dropout.dropped(b, unsigned(c))));
  return narrow<T>(widen(p.a[begin + c]) + b);
}

// Magnitudes of y where nothing is known of them from the step before. Statistics as norm_rows has
// them would need a kernel of each width; in another order of summation a magnitude may differ in
// its last bit.
template <class T, bool Add>
__global__ void __launch_bounds__(256) norm_record(Norm<T, Quantizer> p) {
  wait_for_predecessors();
  if (p.quantizer.is_known()) return;
  Seen seen;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const int64_t begin = row * p.cols;
    const DropoutSpan dropout(p.dropout, row, p.cols);
    auto x = [&](int c) {
      if constexpr (Add) return widen(sum_at(p, dropout, begin, c));
      return widen(p.a[begin + c]);
    };
    float sum = 0, squares = 0, mean = 0;
    for (int c = int(threadIdx.x); c < p.cols; c += 256) sum += x(c);
    if (p.mean) mean = block_sum<256>(sum) * p.inverse_cols;
    for (int c = int(threadIdx.x); c < p.cols; c += 256) squares += (x(c) - mean) * (x(c) - mean);
    const float rstd = rsqrtf(block_sum<256>(squares) * p.inverse_cols + p.eps);
    for (int c = int(threadIdx.x); c < p.cols; c += 256) {
      const float y = (x(c) - mean) * rstd * weight_at(p.gamma, c) + (p.beta ? widen(p.beta[c]) : 0.f);
      seen.most = fmaxf(seen.most, fabsf(widen(narrow<T>(y))));
    }
  }
  seen.most = warp_max(seen.most);
  if (threadIdx.x % 32 == 0) seen.record(p.quantizer);
}

// Any width and alignment: a block per row,
// read three times (twice from the caches).
template <class T, int Threads, bool Add>
__global__ void __launch_bounds__(Threads) norm_any(Norm<T> p) {
  wait_for_predecessors();
  int64_t row = blockIdx.x, begin = row * p.cols;
  const T* x = (Add ? p.s : p.a) + begin;  // of s a thread reads its own writes
  const DropoutSpan dropout(p.dropout, row, p.cols);
  float sum = 0, squares = 0, mean = 0;
  for (int c = int(threadIdx.x); c < p.cols; c += Threads) {
    if constexpr (Add) p.s[begin + c] = sum_at(p, dropout, begin, c);
    sum += widen(x[c]);
  }
  if (p.mean) mean = block_sum<Threads>(sum) * p.inverse_cols;
  for (int c = int(threadIdx.x); c < p.cols; c += Threads) squares += (widen(x[c]) - mean) * (widen(x[c]) - mean);
  float rstd = rsqrtf(block_sum<Threads>(squares) * p.inverse_cols + p.eps);
  if (threadIdx.x == 0) {
    if (p.mean) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
  for (int c = int(threadIdx.x); c < p.cols; c += Threads) {
    float beta = p.beta ? widen(p.beta[c]) : 0.f;
    p.y[begin + c] = narrow<T>((widen(x[c]) - mean) * rstd * weight_at(p.gamma, c) + beta);
  }
}

template <Sum Added, class T>
void launch_rows(const KernelCall& c, const Norm<T>& p) {
  bool done = aligned({p.a, p.b, p.gamma, p.beta, p.s, p.y}) && with_slice<T>(p.cols, [&](auto threads, auto k) {
                constexpr int Threads = decltype(threads)::value, per_block = rows_a_block(Threads);
                launch(c, norm_rows<T, decltype(k)::value, Threads, Added, NoQuantizer>, blocks_for(p.rows, per_block),
                       Threads * per_block, 0, p);
              });
  if (!done) launch(c, norm_any<T, 256, Added != Sum::none>, unsigned(p.rows), 256, 0, p);
}

// add_norm, or norm.
template <bool Add>
void launch_norm(const KernelCall& c) {
  constexpr size_t a = Add ? size_t(in::add_norm::a) : size_t(in::norm::x);
  constexpr size_t gamma = Add ? size_t(in::add_norm::gamma) : size_t(in::norm::gamma);
  constexpr size_t beta = Add ? size_t(in::add_norm::beta) : size_t(in::norm::beta);
  constexpr size_t y = Add ? size_t(out::add_norm::y) : size_t(out::norm::y);
  constexpr size_t rstd = Add ? size_t(out::add_norm::rstd) : size_t(out::norm::rstd);
  constexpr size_t mean = Add ? size_t(out::add_norm::mean) : size_t(out::norm::mean);
  const Value& x = c.in_value(a);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    Norm<T> p = {};
    p.a = c.input<T>(a);
    if (c.has(gamma)) p.gamma = c.input<T>(gamma);
    if (c.has(beta)) p.beta = c.input<T>(beta);
    if (Add) p.b = c.input<T>(in::add_norm::b), p.s = c.output<T>(out::add_norm::s);
    p.y = c.output<T>(y);
    p.rstd = c.output<float>(rstd);
    if (c.instr.attrs.text("kind") == "layer") p.mean = c.output<float>(mean);
    p.rows = x.shape.rows(), p.cols = int(x.shape.back());
    p.inverse_cols = 1.f / float(p.cols);
    p.eps = float(c.instr.attrs.number("eps"));
    if constexpr (Add) {
      p.dropout = dropout_rows(c, in::add_norm::scalars, x);
      c.has(in::add_norm::scalars) ? launch_rows<Sum::dropped>(c, p) : launch_rows<Sum::plain>(c, p);
    } else {
      launch_rows<Sum::none>(c, p);
    }
  });
}

std::string reject_quantize(const KernelQuery& q) {
  namespace at = in::norm_quantize;
  if (std::string why = reject_norm_of_rows(q, {at::a, at::gamma, at::b, at::beta}); !why.empty()) return why;
  if (q.in(at::a).shape.back() > 512 * 8 * 8) return "takes rows of at most 32768 numbers";
  return reject_scales(q, {at::amax, at::record});
}

template <Sum Added, class Scales>
void launch_quantized_rows(const KernelCall& c, const Norm<bfloat16, Scales>& p) {
  if constexpr (std::is_same_v<Scales, Quantizer>) {
    const int64_t processors = std::max(c.device->multiprocessors, 1);
    launch(c, norm_record<bfloat16, Added != Sum::none>, unsigned(std::min(p.rows, processors)), 256, 0, p);
  }
  bool done = with_slice<bfloat16>(p.cols, [&](auto threads, auto k) {
    constexpr int Threads = decltype(threads)::value, per_block = rows_a_block(Threads);
    launch(c, norm_rows<bfloat16, decltype(k)::value, Threads, Added, Scales>, blocks_for(p.rows, per_block),
           Threads * per_block, 0, p);
  });
  if (!done) fail_internal("norm_quantize: rows without a kernel");
}

template <class Scales>
void launch_norm_with(const KernelCall& c, const Scales& quantizer) {
  namespace at = in::norm_quantize;
  const Value& x = c.in_value(at::a);
  const size_t rstd = norm_quantize_rstd(c.instr.attrs);
  Norm<bfloat16, Scales> p = {};
  p.a = c.input<bfloat16>(at::a);
  if (c.has(at::gamma)) p.gamma = c.input<bfloat16>(at::gamma);
  if (c.has(at::beta)) p.beta = c.input<bfloat16>(at::beta);
  p.rstd = c.output<float>(rstd);
  if (c.instr.attrs.text("kind") == "layer") p.mean = c.output<float>(rstd + 1);
  p.rows = x.shape.rows(), p.cols = int(x.shape.back());
  p.inverse_cols = 1.f / float(p.cols);
  p.eps = float(c.instr.attrs.number("eps"));
  p.quantizer = quantizer;
  if (!c.has(at::b)) return launch_quantized_rows<Sum::none>(c, p);
  p.b = c.input<bfloat16>(at::b), p.s = c.output<bfloat16>(c.instr.out.size() - 1);
  p.dropout = dropout_rows(c, at::scalars, x);
  c.has(at::scalars) ? launch_quantized_rows<Sum::dropped>(c, p) : launch_quantized_rows<Sum::plain>(c, p);
}

void launch_norm_quantize(const KernelCall& c) {
  namespace at = in::norm_quantize;
  const Attrs& attrs = c.instr.attrs;
  if (fp8_blocks(attrs) == Fp8Blocks::none)
    return launch_norm_with(c, quantizer_of(c, attrs, at::amax, out::norm_quantize::q));
  namespace to = out::quantize_blocks;  // the first outputs
  BlockQuantizer q = block_quantizer(c.in_value(at::a), attrs);
  set_rows(q, attrs, c.out[to::q], c.out[to::scale], c.out[to::counts]);
  launch_norm_with(c, q);
}

}  // namespace

Kernel norm_quantize_kernel() {
  return {"norm_quantize", "cuda.norm_quantize",
          reject_quantize, nullptr,
          nullptr,         CREST_DEVICE_CODE(launch_norm_quantize)};
}
Kernel norm_kernel() {
  return {"norm", "cuda.norm", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_norm<false>)};
}
Kernel add_norm_kernel() {
  return {"add_norm", "cuda.add_norm", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_norm<true>)};
}

}  // namespace crest::cuda
