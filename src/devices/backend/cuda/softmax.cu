// softmax, softmax_grad and causal_mask over rows: one pass over memory for rows in registers.
// Masked elements are written, not read.
#include "backend/cuda/device/activation.h"
#include "backend/cuda/device/platform.h"
#include "backend/cuda/device/rows_slice.h"
#include "backend/cuda/rows.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

// exp(x - top); a row without any finite number has the maximum -inf and becomes zeros.
__device__ inline float exp_below(float x, float top) { return __expf(x - (top == -INFINITY ? 0.f : top)); }

// Number of leading elements of a row that count: all, or up to the diagonal of square causal
// scores.
__device__ inline int visible(int64_t row, int cols, bool causal) { return causal ? int(row % cols) + 1 : cols; }

// The thread's vectors of a row with `seen` counting elements from the thread's first one on; the
// others are zeros.
template <int Threads, class T, int K>
__device__ inline void load_seen(Pack<T> (&v)[K], const T* x, int seen) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    constexpr int stride = Threads * Pack<T>::size;
    v[k] = {};
    if (k * stride < seen) v[k] = load_pack(x + k * stride);
  }
}
// Zeros for all but the first `seen` (any number) numbers of a vector: nothing to do but for the
// one on the diagonal.
template <class T>
__device__ inline void hide(Pack<T>& v, int seen) {
  constexpr int pair = 4 / int(sizeof(T));
  if (seen >= Pack<T>::size) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (pair * i >= seen) v.w[i] = 0;
    if (pair == 2 && 2 * i + 1 == seen) v.w[i] &= 0xffffu;
  }
}

// For a positive scale, given as scale log2(e): the largest score
// is the largest element's, and one fused multiply-add makes an
// exponent (rounding of the common shift cancels in the quotient).
template <class T, int K, int Threads>
__global__ void __launch_bounds__(Threads* rows_a_block(Threads))
    softmax_rows(const T* x, T* y, int64_t rows, int cols, float scale_log2, bool causal) {
  wait_for_predecessors();
  using Slice = RowSlice<T, K, Threads>;
  constexpr int N = Slice::N;
  Slice slice(cols);
  if (slice.row >= rows) return;
  int seen = visible(slice.row, cols, causal) - slice.column;
  Pack<T> v[K];
  load_seen<Threads>(v, x + slice.begin, seen);
  float e[K][N], top = -INFINITY, sum = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    v[k].widen_to(e[k]);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      e[k][j] = k * Threads * N + j < seen ? e[k][j] : -INFINITY;
      top = fmaxf(top, e[k][j]);
    }
  }
  top = Slice::max(top);
  float shift = top == -INFINITY ? 0.f : top * scale_log2;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float part = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) part += e[k][j] = exp2_fast(fmaf(e[k][j], scale_log2, -shift));
    sum += part;
  }
  sum = Slice::sum(sum);
  float inverse = sum == 0 ? 0.f : 1.f / sum;
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) e[k][j] *= inverse;
    slice.store(y + slice.begin, k, Pack<T>::narrowed(e[k]));
  }
}

// dx = scale y (dy - sum(dy y)); dx may lie over dy.
template <class T, int K, int Threads>
__global__ void __launch_bounds__(Threads* rows_a_block(Threads))
    softmax_grad_rows(const T* dy, const T* y, T* dx, int64_t rows, int cols, float scale, bool causal) {
  wait_for_predecessors();
  using Slice = RowSlice<T, K, Threads>;
  constexpr int N = Slice::N;
  Slice slice(cols);
  if (slice.row >= rows) return;
  int seen = visible(slice.row, cols, causal) - slice.column;
  Pack<T> d[K], p[K];
  load_seen<Threads>(d, dy + slice.begin, seen);
  load_seen<Threads>(p, y + slice.begin, seen);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float a[N], b[N], part = 0;
    hide(d[k], seen - k * Threads * N);
    hide(p[k], seen - k * Threads * N);
    d[k].widen_to(a);
    p[k].widen_to(b);
#pragma unroll
    for (int j = 0; j < N; ++j) part += a[j] * b[j];
    sum += part;
  }
  float shift = Slice::sum(sum) * scale;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float a[N], b[N];
    d[k].widen_to(a);
    p[k].widen_to(b);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] = b[j] * fmaf(a[j], scale, -shift);
    slice.store(dx + slice.begin, k, Pack<T>::narrowed(a));
  }
}

// Any width and alignment: a block per row,
// read three times (twice from the caches).
template <class T>
__global__ void __launch_bounds__(256) softmax_any(const T* x, T* y, int cols, float scale, bool causal) {
  wait_for_predecessors();
  int64_t begin = int64_t(blockIdx.x) * cols;
  int n = visible(blockIdx.x, cols, causal);
  float top = -INFINITY, sum = 0;
  for (int c = int(threadIdx.x); c < n; c += 256) top = fmaxf(top, widen(x[begin + c]) * scale);
  top = block_max<256>(top);
  for (int c = int(threadIdx.x); c < n; c += 256) sum += exp_below(widen(x[begin + c]) * scale, top);
  sum = block_sum<256>(sum);
  float inverse = sum == 0 ? 0.f : 1.f / sum;
  for (int c = int(threadIdx.x); c < cols; c += 256)
    y[begin + c] = narrow<T>(c < n ? exp_below(widen(x[begin + c]) * scale, top) * inverse : 0.f);
}
template <class T>
__global__ void __launch_bounds__(256)
    softmax_grad_any(const T* dy, const T* y, T* dx, int cols, float scale, bool causal) {
  wait_for_predecessors();
  int64_t begin = int64_t(blockIdx.x) * cols;
  int n = visible(blockIdx.x, cols, causal);
  float sum = 0;
  for (int c = int(threadIdx.x); c < n; c += 256) sum += widen(dy[begin + c]) * widen(y[begin + c]);
  sum = block_sum<256>(sum);
  for (int c = int(threadIdx.x); c < cols; c += 256)
    dx[begin + c] = narrow<T>(c < n ? scale * widen(y[begin + c]) * (widen(dy[begin + c]) - sum) : 0.f);
}

// A block per row of a square of `cols` by `cols` scores: -inf right of the diagonal, left of the
// row's document (positions [batch, cols], may be null; rows_a_sample = heads cols) and of its
// window (0: none). Masked elements are not read.
template <class T, int N>
__global__ void __launch_bounds__(128)
    mask_rows(const T* s, T* y, int cols, int window, const int32_t* positions, int64_t rows_a_sample) {
  wait_for_predecessors();
  int64_t begin = int64_t(blockIdx.x) * cols;
  int row = int(blockIdx.x % unsigned(cols));
  int first = positions ? row - positions[blockIdx.x / rows_a_sample * cols + row] : 0;
  if (window) first = max(first, row - window + 1);
#pragma unroll 2
  for (int c = int(threadIdx.x) * N; c < cols; c += 128 * N) {
    Vec<T, N> v = {};
    if (c <= row && c + N > first) v = load_vec<N>(s + begin + c);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (c + j > row || c + j < first) v.x[j] = narrow<T>(-INFINITY);
    store_vec(y + begin + c, v);
  }
}

float scale_of(const KernelCall& c) { return float(c.instr.attrs.number("scale", 1)); }
bool is_causal(const KernelCall& c) { return c.instr.attrs.integer("causal", 0) != 0; }

void launch_softmax(const KernelCall& c) {
  const Value& x = c.in_value(in::softmax::x);
  int64_t rows = x.shape.rows(), cols = x.shape.back();
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const T* in = c.input<T>(in::softmax::x);
    T* out = c.output<T>(out::softmax::y);
    float scale = scale_of(c);
    bool done = scale > 0 && aligned({in, out}) && with_slice<T>(cols, [&](auto threads, auto k) {
                  constexpr int Threads = decltype(threads)::value, per_block = rows_a_block(Threads);
                  launch(c, softmax_rows<T, decltype(k)::value, Threads>, blocks_for(rows, per_block),
                         Threads * per_block, 0, in, out, rows, cols, scale * float(M_LOG2E), is_causal(c));
                });
    if (!done) launch(c, softmax_any<T>, unsigned(rows), 256, 0, in, out, cols, scale, is_causal(c));
  });
}

void launch_grad(const KernelCall& c) {
  const Value& dy = c.in_value(in::softmax_grad::dy);
  int64_t rows = dy.shape.rows(), cols = dy.shape.back();
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    const T *d = c.input<T>(in::softmax_grad::dy), *y = c.input<T>(in::softmax_grad::y);
    T* dx = c.output<T>(out::softmax_grad::dx);
    bool done = aligned({d, y, dx}) && with_slice<T>(cols, [&](auto threads, auto k) {
                  constexpr int Threads = decltype(threads)::value, per_block = rows_a_block(Threads);
                  launch(c, softmax_grad_rows<T, decltype(k)::value, Threads>, blocks_for(rows, per_block),
                         Threads * per_block, 0, d, y, dx, rows, cols, scale_of(c), is_causal(c));
                });
    if (!done) launch(c, softmax_grad_any<T>, unsigned(rows), 256, 0, d, y, dx, cols, scale_of(c), is_causal(c));
  });
}

void launch_mask(const KernelCall& c) {
  const Value& s = c.in_value(in::causal_mask::s);
  int64_t rows = s.shape.rows(), cols = s.shape.back(), heads = s.shape[1];
  const int32_t* positions = c.has(in::causal_mask::positions) ? c.input<int32_t>(in::causal_mask::positions) : nullptr;
  with_type(s.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    int window = int(window_of(c.instr.attrs, cols));
    const T* in = c.input<T>(in::causal_mask::s);
    T* out = c.output<T>(out::causal_mask::y);
    if (cols % N == 0 && aligned({in, out}))
      launch(c, mask_rows<T, N>, unsigned(rows), 128, 0, in, out, cols, window, positions, heads * cols);
    else
      launch(c, mask_rows<T, 1>, unsigned(rows), 128, 0, in, out, cols, window, positions, heads * cols);
  });
}

}  // namespace

Kernel softmax_kernel() {
  return {"softmax", "cuda.softmax", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_softmax)};
}
Kernel softmax_grad_kernel() {
  return {"softmax_grad", "cuda.softmax_grad", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_grad)};
}
Kernel causal_mask_kernel() {
  return {"causal_mask", "cuda.causal_mask", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_mask)};
}

}  // namespace crest::cuda
