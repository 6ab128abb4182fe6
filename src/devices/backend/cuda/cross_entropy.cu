// loss_stats, cross_entropy, cross_entropy_grad, cross_entropy_fused. A block takes a row. In the
// fused kernel the row waits in shared memory between the sum of its exponentials and its gradient,
// so logits are read once. A cap is computed anew for the gradient, which costs less than keeping
// its results.
#include "backend/cuda/device/activation.h"
#include "backend/cuda/device/exp2.h"
#include "backend/cuda/device/loss_async.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int max_threads = 512;
constexpr int batch = 4;  // 16-byte vectors loaded at once by a thread
constexpr int everything = 1 << 30;
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

enum class Mode { stats, forward, backward, fused };

struct CrossEntropyArgs {
  const void* logits;
  const int32_t* targets;
  const Scalars* scalars;  // of forward: may be null
  const float* lse_in;     // backward
  float *loss, *lse;       // lse: forward
  float* stats;            // [rows, 3]
  void* dlogits;
  int cols, vocab;         // of this rank's columns, the first `vocab` count
  int64_t first, all;      // and are those from `first` on, of `all`
  int64_t pitch, d_pitch;  // of logits and dlogits
  int kept;                // batches of a row in shared memory, or everything; the others are read twice
  float scale;
  float cap, inverse_cap;  // of the logits
};

// The logits of the softmax from the ones in memory, and their slopes. e^(-2 |u|) gives both tanh u
// and, without cancellation, its slope.
struct NoCap {
  __device__ explicit NoCap(const CrossEntropyArgs&) {}
  __device__ float operator()(float x) const { return x; }
  __device__ float slope(float) const { return 1.f; }
};
template <class T>
struct TanhCap {
  float cap, inverse;
  __device__ explicit TanhCap(const CrossEntropyArgs& a) : cap(a.cap), inverse(a.inverse_cap) {}
  __device__ float operator()(float x) const {
    if constexpr (sizeof(T) == 4) return cap * tanhf(x * inverse);
    const float e = below(x);
    return copysignf(cap * (1.f - e) * reciprocal_fast(1.f + e), x);
  }
  __device__ float slope(float x) const {
    const float e = below(x), r = reciprocal_fast(1.f + e);
    return 4.f * e * r * r;
  }
  __device__ float below(float x) const { return exp2_fast(-2.f * log2_e * fabsf(x * inverse)); }
};

// `sum` 2^`max` is a sum of exponentials e^x, max being the largest x log2(e).
struct RowSum {
  float max, sum;
};

__device__ inline RowSum merged(RowSum a, RowSum b) {
  float max = fmaxf(a.max, b.max), shift = max == -INFINITY ? 0.f : max;  // -inf - -inf would be NaN
  return {max, a.sum * exp2_fast(a.max - shift) + b.sum * exp2_fast(b.max - shift)};
}

// The same in every thread. To be called once.
__device__ inline RowSum block_merged(RowSum s) {
  __shared__ RowSum part[max_threads / 32];
  for (int d = 16; d > 0; d /= 2)
    s = merged(s, {__shfl_xor_sync(0xffffffffu, s.max, d), __shfl_xor_sync(0xffffffffu, s.sum, d)});
  int lane = int(threadIdx.x % 32), warps = int(blockDim.x / 32);
  if (lane == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = lane < warps ? part[lane] : RowSum{-INFINITY, 0.f};
  for (int d = 16; d > 0; d /= 2)
    s = merged(s, {__shfl_xor_sync(0xffffffffu, s.max, d), __shfl_xor_sync(0xffffffffu, s.sum, d)});
  return {__shfl_sync(0xffffffffu, s.max, 0), __shfl_sync(0xffffffffu, s.sum, 0)};
}

// A row as its threads see it: single columns up to a 16-byte boundary, vectors, single columns.
// Thread t owns vectors t, t + blockDim.x, .. and the t-th of the single columns; it alone reads
// and writes them.
template <class T>
struct Row {
  static constexpr int N = Vec<T>::size;
  const T* x;
  int head, vectors, singles, vocab;
  int batches;  // of `batch` vectors a thread, without padding columns; the rest is taken one by one

  // d: the gradient's row; no vectors if both are aligned differently.
  __device__ Row(const T* row, const T* d, const CrossEntropyArgs& a) : x(row), vocab(a.vocab) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(row) % 16, d_at = reinterpret_cast<uintptr_t>(d) % 16;
    head = a.dlogits && at != d_at ? a.cols : min(int((16 - at) % 16 / sizeof(T)), a.cols);
    vectors = (a.cols - head) / N;
    singles = a.cols - vectors * N;
    batches = max(0, min(vectors, (vocab - head) / N)) / (batch * int(blockDim.x));
  }
  // Of a column: the number of its vector, or its number among the single ones; modulo blockDim.x
  // it is the thread.
  __device__ int owner(int column) const {
    int i = column - head;
    return i < 0 ? column : i < vectors * N ? i / N : column - vectors * N;
  }
  __device__ int column_of_single(int i) const { return i < head ? i : i + vectors * N; }
  __device__ const Vec<T>* all() const { return reinterpret_cast<const Vec<T>*>(x + head); }
  // This thread's vector k of batch b.
  __device__ int vector_of(int b, int k) const { return (b * batch + k) * int(blockDim.x) + int(threadIdx.x); }
  // Elements of vector i before the padding columns; may be negative, or more than it has.
  __device__ int counted(int i) const { return vocab - head - i * N; }
};

// Online softmax (Milakov and Gimelshein, 2018): the sum so far is rescaled when the maximum grows.
// The first `counted` elements of each vector are logits.
template <class T, int K, class Cap>
__device__ inline RowSum sum_vectors(RowSum s, const Vec<T> (&v)[K], Cap cap, int counted) {
  constexpr int N = Vec<T>::size;
  float max = -INFINITY, sums[4] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int e = 0; e < N; ++e) max = fmaxf(max, e < counted ? widen(v[k].x[e]) : -INFINITY);
  if (counted > 0) max = cap(max);  // which keeps the order
  max = fmaxf(s.max, max * log2_e);
  float shift = max == -INFINITY ? 0.f : max;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int e = 0; e < N; ++e)
      sums[e % 4] += e < counted ? exp2_fast(fmaf(cap(widen(v[k].x[e])), log2_e, -shift)) : 0.f;
  return {max, s.sum * exp2_fast(s.max - shift) + ((sums[0] + sums[1]) + (sums[2] + sums[3]))};
}

// Starts copies of the first batches of a row (one group each) and of the rest as the last group;
// returns the number of groups.
template <class T>
__device__ int keep_row(Vec<T>* kept, const Row<T>& row, int most) {
  const Vec<T>* x = row.all();
  int groups = most == everything ? row.batches + 1 : min(most, row.batches);
  for (int b = 0; b < min(groups, row.batches); ++b) {
#pragma unroll
    for (int k = 0; k < batch; ++k) loss_copy16(kept + row.vector_of(b, k), x + row.vector_of(b, k));
    loss_copy_commit();
  }
  if (groups > row.batches) {
    for (int i = row.vector_of(row.batches, 0); i < row.vectors; i += int(blockDim.x)) loss_copy16(kept + i, x + i);
    loss_copy_commit();
  }
  return groups;
}

template <class T, class Cap>
__device__ RowSum sum_row(const Row<T>& row, const Vec<T>* kept, int groups, Cap cap) {
  RowSum s{-INFINITY, 0.f};
  for (int i = int(threadIdx.x); i < row.singles; i += int(blockDim.x)) {
    const int column = row.column_of_single(i);
    const float x = column < row.vocab ? cap(widen(row.x[column])) * log2_e : -INFINITY;
    s = merged(s, {x, x == -INFINITY ? 0.f : 1.f});
  }
  for (int b = 0; b < row.batches; ++b) {
    Vec<T> v[batch];
    if (b < groups) {
      loss_copy_wait(groups - 1 - b);
#pragma unroll
      for (int k = 0; k < batch; ++k) v[k] = kept[row.vector_of(b, k)];
    } else {
#pragma unroll
      for (int k = 0; k < batch; ++k) v[k] = row.all()[row.vector_of(b, k)];
    }
    s = sum_vectors(s, v, cap, Row<T>::N);
  }
  loss_copy_wait(0);
  const Vec<T>* from = groups > row.batches ? kept : row.all();
  for (int i = row.vector_of(row.batches, 0); i < row.vectors; i += int(blockDim.x)) {
    Vec<T> v[1] = {from[i]};
    s = sum_vectors(s, v, cap, row.counted(i));
  }
  return block_merged(s);
}

// e^x over the meaning of `shift`: 2^shift after a sum over the row; e^shift with the saved
// log-sum-exp, whose difference from x keeps more digits than a difference of scaled numbers.
template <Mode mode>
__device__ float probability(float x, float shift) {
  return mode == Mode::backward ? exp2_fast((x - shift) * log2_e) : exp2_fast(fmaf(x, log2_e, -shift));
}

template <class T, Mode mode, class Cap>
__device__ void write_row(T* d, const Row<T>& row, const Vec<T>* kept, int groups, Cap cap, float shift, float factor) {
  constexpr int N = Vec<T>::size;
  auto gradient = [&](T x) {
    const float logit = widen(x);
    return narrow<T>(probability<mode>(cap(logit), shift) * factor * cap.slope(logit));
  };
  auto write = [&](Vec<T> v, int i, int counted) {
#pragma unroll
    for (int e = 0; e < N; ++e) v.x[e] = e < counted ? gradient(v.x[e]) : narrow<T>(0.f);
    store_vec(d + row.head + i * N, v);
  };
  for (int i = int(threadIdx.x); i < row.singles; i += int(blockDim.x)) {
    int column = row.column_of_single(i);
    d[column] = column < row.vocab ? gradient(row.x[column]) : narrow<T>(0.f);
  }
  for (int b = 0; b < row.batches; ++b) {
    Vec<T> v[batch];
    if (b < groups) {
#pragma unroll
      for (int k = 0; k < batch; ++k) v[k] = kept[row.vector_of(b, k)];
    } else {
#pragma unroll
      for (int k = 0; k < batch; ++k) v[k] = row.all()[row.vector_of(b, k)];
    }
#pragma unroll
    for (int k = 0; k < batch; ++k) write(v[k], row.vector_of(b, k), N);
  }
  const Vec<T>* from = groups > row.batches ? kept : row.all();
  for (int i = row.vector_of(row.batches, 0); i < row.vectors; i += int(blockDim.x)) write(from[i], i, row.counted(i));
}

template <class T>
__device__ void zero_row(T* d, const Row<T>& row) {
  for (int i = int(threadIdx.x); i < row.singles; i += int(blockDim.x)) d[row.column_of_single(i)] = narrow<T>(0.f);
  Vec<T> zero;
  for (int e = 0; e < Vec<T>::size; ++e) zero.x[e] = narrow<T>(0.f);
  for (int i = int(threadIdx.x); i < row.vectors; i += int(blockDim.x))
    store_vec(d + row.head + i * Vec<T>::size, zero);
}

template <class T, Mode mode, class Cap>
__global__ void __launch_bounds__(max_threads, 2) cross_entropy_row(CrossEntropyArgs a) {
  wait_for_predecessors();
  Vec<T>* kept = nullptr;
  const int64_t r = blockIdx.x;
  T* d = static_cast<T*>(a.dlogits) + r * a.d_pitch;
  const Row<T> row(static_cast<const T*>(a.logits) + r * a.pitch, d, a);
  const int64_t label = a.targets[r];
  const int target = int(max(int64_t(-1), min(label - a.first, int64_t(a.cols))));  // its column
  const float weight = a.scalars ? a.scalars->loss_weight : 1.f;
  constexpr bool differentiates = mode == Mode::backward || mode == Mode::fused;
  const float scale = differentiates ? a.scale * a.scalars->loss_scale * weight : 0.f;
  const bool counted = label >= 0 && label < a.all, here = counted && target >= 0 && target < a.vocab;
  if (differentiates && !counted) {
    if (mode == Mode::fused && threadIdx.x == 0) a.loss[r] = 0.f;
    return zero_row(d, row);
  }
  int groups = 0;
  if constexpr (mode == Mode::fused) {
    CREST_DYNAMIC_SHARED(Vec<T>, shared);
    kept = shared;
    groups = keep_row(kept, row, a.kept);
  }
  // dlogits may be the logits: read before the barrier in sum_row, or by the overwriting thread.
  const bool owns = here && row.owner(target) % int(blockDim.x) == int(threadIdx.x);
  const Cap cap(a);
  const float logit = here && (owns || mode != Mode::backward) ? widen(row.x[target]) : 0.f, at_target = cap(logit);
  RowSum s{0.f, 1.f};
  if (mode == Mode::backward)
    s.max = a.lse_in[r];
  else
    s = sum_row(row, kept, groups, cap);
  if (mode == Mode::stats) {
    float* stats = a.stats + r * 3;
    if (threadIdx.x == 0) stats[0] = s.max * ln_2, stats[1] = s.sum, stats[2] = at_target;
    return;
  }
  if (mode != Mode::backward && threadIdx.x == 0) {
    float log2_sum = log2f(s.sum);
    a.loss[r] = counted ? (log2_sum - fmaf(at_target, log2_e, -s.max)) * (ln_2 * weight) : 0.f;
    if (mode == Mode::forward) a.lse[r] = (s.max + log2_sum) * ln_2;
  }
  if (mode == Mode::forward) return;
  const float factor = scale / s.sum;
  write_row<T, mode>(d, row, kept, groups, cap, s.max, factor);
  if (owns)  // a second time
    d[target] = narrow<T>((probability<mode>(at_target, s.max) * factor - scale) * cap.slope(logit));
}

// Shared memory for the row with two blocks on a multiprocessor; a block costs 1 KiB on top of its
// own.
int64_t shared_for_row(const Device* device) {
  int64_t most = device && device->shared_per_block > 0 ? device->shared_per_block : 48 * 1024;
  return (most + 1024) / 2 - 1024 - 256;
}

template <Mode mode>
void launch_rows(const KernelCall& c, CrossEntropyArgs a) {
  const Value& logits = c.in_value(in::cross_entropy::logits);
  a.logits = c.in[in::cross_entropy::logits];
  a.targets = c.input<int32_t>(in::cross_entropy::targets);
  a.cols = int(logits.shape.back());
  a.pitch = logits.pitch();
  a.all = c.instr.attrs.integer("vocab"), a.first = c.part_begin(a.cols);
  a.vocab = int(std::clamp<int64_t>(a.all - a.first, 0, a.cols));
  if (mode == Mode::backward || mode == Mode::fused) a.scale = float(c.instr.attrs.number("scale"));
  int64_t vectors = a.cols * int64_t(size_of(logits.dtype)) / 16;
  auto threads = unsigned(std::clamp<int64_t>((vectors + 31) / 32 * 32, 32, max_threads));
  size_t shared = 0;
  if (mode == Mode::fused) {
    int64_t batch_bytes = int64_t(threads) * batch * 16, room = shared_for_row(c.device);
    bool fits = vectors * 16 <= room;
    a.kept = fits ? everything : int(room / batch_bytes);
    shared = size_t(std::max<int64_t>(16, fits ? vectors * 16 : a.kept * batch_bytes));
  }
  const double cap = c.instr.attrs.number("cap", 0);
  if (cap > 0) a.cap = float(cap), a.inverse_cap = float(1 / cap);
  with_type(logits.dtype, [&](auto t) {
    using T = decltype(t);
    const auto kernel = cap > 0 ? cross_entropy_row<T, mode, TanhCap<T>> : cross_entropy_row<T, mode, NoCap>;
    launch(c, kernel, unsigned(logits.shape.rows()), threads, shared, a);
  });
}

void launch_stats(const KernelCall& c) {
  CrossEntropyArgs a{};
  a.stats = c.output<float>(out::loss_stats::stats);
  launch_rows<Mode::stats>(c, a);
}

// A thread takes a row of stats[ranks, rows, 3] and combines them in the order of the ranks.
__global__ void __launch_bounds__(max_threads)
    combine_stats(const float* stats, int ranks, int64_t rows, int64_t vocab, const int32_t* targets,
                  const Scalars* scalars, float* loss, float* lse) {
  wait_for_predecessors();
  const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float max = -INFINITY, sum = 0, at_target = 0;
  auto of = [&](int rank) { return stats + (rank * rows + r) * 3; };
  for (int k = 0; k < ranks; ++k) max = fmaxf(max, of(k)[0]);
  const float shift = max == -INFINITY ? 0.f : max;
  for (int k = 0; k < ranks; ++k) {
    sum += of(k)[1] * expf(of(k)[0] - shift);
    at_target += of(k)[2];
  }
  const float log_sum = logf(sum), weight = scalars ? scalars->loss_weight : 1.f;
  const bool counted = targets[r] >= 0 && targets[r] < vocab;
  loss[r] = counted ? (log_sum + (max - at_target)) * weight : 0.f;
  lse[r] = max + log_sum;
}

void launch_combine(const KernelCall& c) {
  namespace at = in::cross_entropy;
  const Shape& stats = c.in_value(at::stats).shape;
  launch(c, combine_stats, blocks_for(stats[1], max_threads), max_threads, 0, c.input<float>(at::stats), int(stats[0]),
         stats[1], c.instr.attrs.integer("vocab"), c.input<int32_t>(at::targets),
         c.has(at::scalars) ? c.input<Scalars>(at::scalars) : nullptr, c.output<float>(out::cross_entropy::loss),
         c.output<float>(out::cross_entropy::lse));
}

void launch_forward(const KernelCall& c) {
  if (c.has(in::cross_entropy::stats)) return launch_combine(c);
  CrossEntropyArgs a{};
  a.loss = c.output<float>(out::cross_entropy::loss), a.lse = c.output<float>(out::cross_entropy::lse);
  if (c.has(in::cross_entropy::scalars)) a.scalars = c.input<Scalars>(in::cross_entropy::scalars);
  launch_rows<Mode::forward>(c, a);
}

void launch_backward(const KernelCall& c) {
  CrossEntropyArgs a{};
  a.lse_in = c.input<float>(in::cross_entropy_grad::lse), a.scalars = c.input<Scalars>(in::cross_entropy_grad::scalars);
  a.dlogits = c.out[out::cross_entropy_grad::dlogits];
  a.d_pitch = c.out_value(out::cross_entropy_grad::dlogits).pitch();
  launch_rows<Mode::backward>(c, a);
}

void launch_fused(const KernelCall& c) {
  CrossEntropyArgs a{};
  a.scalars = c.input<Scalars>(in::cross_entropy_fused::scalars);
  a.loss = c.output<float>(out::cross_entropy_fused::loss), a.dlogits = c.out[out::cross_entropy_fused::dlogits];
  a.d_pitch = c.out_value(out::cross_entropy_fused::dlogits).pitch();
  launch_rows<Mode::fused>(c, a);
}

std::string reject(const KernelQuery& q) {
  const Shape& logits = q.in(in::cross_entropy::logits).shape;
  if (logits.back() >= int64_t(1) << 30 || logits.rows() >= int64_t(1) << 31) return "2^30 columns or 2^31 rows";
  return reject_unless_float_rows(q);
}

}  // namespace

Kernel loss_stats_kernel() {
  return {"loss_stats", "cuda.loss_stats.row", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_stats)};
}
Kernel cross_entropy_kernel() {
  return {"cross_entropy", "cuda.cross_entropy.row", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel cross_entropy_grad_kernel() {
  return {"cross_entropy_grad",
          "cuda.cross_entropy_grad.row",
          reject,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_backward)};
}
Kernel cross_entropy_fused_kernel() {
  return {"cross_entropy_fused",          "cuda.cross_entropy_fused.row", reject, nullptr, nullptr,
          CREST_DEVICE_CODE(launch_fused)};
}

}  // namespace crest::cuda
