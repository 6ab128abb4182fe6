// qk_norm and its gradient: a warp for each group of a token that shares a mean (a head, or all
// heads), and one for its values.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 128, warps = threads / 32;
constexpr int most_chunks = 256;

struct QkShape {
  int64_t tokens;
  int width, values;                       // elements of a row, and of its values
  int q_cols, k_cols, q_groups, k_groups;  // elements of a group, and groups of a token
  __host__ __device__ int groups() const { return q_groups + k_groups; }
  // Of group g: its first element in the row.
  __device__ int first(int g) const { return g < q_groups ? g * q_cols : q_groups * q_cols + (g - q_groups) * k_cols; }
};

QkShape shape_of(const Value& qkv, const Attrs& a) {
  const int heads = int(a.integer("heads")), kv_heads = int(a.integer("kv_heads"));
  QkShape s = {};
  s.width = int(qkv.shape.back()), s.tokens = qkv.numel() / s.width;
  const int dim = s.width / (heads + 2 * kv_heads);
  const bool by_head = a.text("per") == "head";
  s.values = kv_heads * dim;
  s.q_cols = by_head ? dim : heads * dim, s.k_cols = by_head ? dim : kv_heads * dim;
  s.q_groups = by_head ? heads : 1, s.k_groups = by_head ? kv_heads : 1;
  return s;
}

unsigned blocks_of(const QkShape& s) { return blocks_for(s.tokens * (s.groups() + 1), warps); }

template <class T>
__device__ inline void copy_values(const T* from, T* to, const QkShape& s) {
  if (from == to) return;
  for (int c = s.width - s.values + int(threadIdx.x) % 32; c < s.width; c += 32) to[c] = from[c];
}

template <class T>
__global__ void __launch_bounds__(threads) qk_norm_groups(const T* x, const T* q_weight, const T* k_weight, T* y,
                                                          float* q_rstd, float* k_rstd, QkShape s, float eps) {
  wait_for_predecessors();
  const int64_t item = int64_t(blockIdx.x) * warps + int(threadIdx.x) / 32;
  const int64_t token = item / (s.groups() + 1);
  if (token >= s.tokens) return;
  const int g = int(item - token * (s.groups() + 1)), lane = int(threadIdx.x) % 32;
  x += token * s.width, y += token * s.width;
  if (g == s.groups()) return copy_values(x, y, s);
  const bool keys = g >= s.q_groups;
  const int cols = keys ? s.k_cols : s.q_cols;
  const T* weight = keys ? k_weight : q_weight;
  x += s.first(g), y += s.first(g);
  float squares = 0;
  for (int c = lane; c < cols; c += 32) squares += widen(x[c]) * widen(x[c]);
  const float rstd = rsqrtf(warp_sum(squares) / float(cols) + eps);
  if (lane == 0) {
    if (keys)
      k_rstd[token * s.k_groups + g - s.q_groups] = rstd;
    else
      q_rstd[token * s.q_groups + g] = rstd;
  }
  for (int c = lane; c < cols; c += 32) y[c] = narrow<T>(widen(x[c]) * rstd * (weight ? widen(weight[c]) : 1.f));
}

// dx = rstd (g - n mean(g n)) with n = x rstd and g = dy weight. dx may be dy.
template <class T>
__global__ void __launch_bounds__(threads)
    qk_norm_grad_groups(const T* dy, const T* x, const T* q_weight, const T* k_weight, const float* q_rstd,
                        const float* k_rstd, T* dx, QkShape s) {
  wait_for_predecessors();
  const int64_t item = int64_t(blockIdx.x) * warps + int(threadIdx.x) / 32;
  const int64_t token = item / (s.groups() + 1);
  if (token >= s.tokens) return;
  const int g = int(item - token * (s.groups() + 1)), lane = int(threadIdx.x) % 32;
  dy += token * s.width, x += token * s.width, dx += token * s.width;
  if (g == s.groups()) return copy_values(dy, dx, s);
  const bool keys = g >= s.q_groups;
  const int cols = keys ? s.k_cols : s.q_cols;
  const T* weight = keys ? k_weight : q_weight;
  dy += s.first(g), x += s.first(g), dx += s.first(g);
  const float rstd = keys ? k_rstd[token * s.k_groups + g - s.q_groups] : q_rstd[token * s.q_groups + g];
  auto gradient = [&](int c) { return widen(dy[c]) * (weight ? widen(weight[c]) : 1.f); };
  float sum = 0;
  for (int c = lane; c < cols; c += 32) sum += gradient(c) * widen(x[c]) * rstd;
  const float mean = warp_sum(sum) / float(cols);
  for (int c = lane; c < cols; c += 32) dx[c] = narrow<T>(rstd * (gradient(c) - widen(x[c]) * rstd * mean));
}

// Sums of dy n over the tokens of a chunk, for every element of both weights.
template <class T>
__global__ void __launch_bounds__(threads)
    qk_norm_weight_parts(const T* dy, const T* x, const float* q_rstd, const float* k_rstd, float* parts, QkShape s) {
  wait_for_predecessors();
  const int column = int(blockIdx.x) * threads + int(threadIdx.x), columns = s.q_cols + s.k_cols;
  if (column >= columns) return;
  const bool keys = column >= s.q_cols;
  const int c = keys ? column - s.q_cols : column, groups = keys ? s.k_groups : s.q_groups;
  const int from = keys ? s.q_groups : 0;
  const int64_t begin = s.tokens * blockIdx.y / gridDim.y, end = s.tokens * (blockIdx.y + 1) / gridDim.y;
  float sum = 0;
  for (int64_t token = begin; token < end; ++token)
    for (int g = 0; g < groups; ++g) {
      const int64_t e = token * s.width + s.first(from + g) + c;
      sum += widen(dy[e]) * widen(x[e]) * (keys ? k_rstd : q_rstd)[token * groups + g];
    }
  parts[int64_t(blockIdx.y) * columns + column] = sum;
}

// In the order of the chunks.
__global__ void __launch_bounds__(threads)
    qk_norm_weight_sums(const float* parts, int chunks, void* dq, void* dk, DType t, const void* acc_q,
                        const void* acc_k, QkShape s) {
  wait_for_predecessors();
  const int column = int(blockIdx.x) * threads + int(threadIdx.x), columns = s.q_cols + s.k_cols;
  if (column >= columns) return;
  const bool keys = column >= s.q_cols;
  const int c = keys ? column - s.q_cols : column;
  float sum[1] = {0}, before[1] = {0};
  for (int chunk = 0; chunk < chunks; ++chunk) sum[0] += parts[int64_t(chunk) * columns + column];
  const void* acc = keys ? acc_k : acc_q;
  if (acc) load_any(acc, t, c, before);
  sum[0] += before[0];
  store_any(keys ? dk : dq, t, c, sum);
}

void launch_qk_norm(const KernelCall& c) {
  namespace at = in::qk_norm;
  const Value& x = c.in_value(at::qkv);
  const QkShape s = shape_of(x, c.instr.attrs);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    launch(c, qk_norm_groups<T>, blocks_of(s), threads, 0, c.input<T>(at::qkv), weight(at::q_weight),
           weight(at::k_weight), c.output<T>(out::qk_norm::y), c.output<float>(out::qk_norm::q_rstd),
           c.output<float>(out::qk_norm::k_rstd), s, float(c.instr.attrs.number("eps")));
  });
}

int chunks_of(const QkShape& s) { return int(std::clamp<int64_t>(s.tokens / 32, 1, most_chunks)); }

size_t grad_workspace(const KernelQuery& q) {
  const QkShape s = shape_of(q.in(in::qk_norm_grad::qkv), q.instr.attrs);
  return q.has(in::qk_norm_grad::q_weight) ? size_t(chunks_of(s)) * size_t(s.q_cols + s.k_cols) * sizeof(float) : 0;
}

// The weight gradients come first: dqkv may be dy.
void launch_qk_norm_grad(const KernelCall& c) {
  namespace at = in::qk_norm_grad;
  namespace to = out::qk_norm_grad;
  const Value& dy = c.in_value(at::dy);
  const QkShape s = shape_of(c.in_value(at::qkv), c.instr.attrs);
  const unsigned columns = blocks_for(s.q_cols + s.k_cols, threads);
  auto *q_rstd = c.input<float>(at::q_rstd), *k_rstd = c.input<float>(at::k_rstd);
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    if (c.has(at::q_weight)) {
      auto* parts = static_cast<float*>(c.workspace);
      launch(c, qk_norm_weight_parts<T>, dim3(columns, unsigned(chunks_of(s))), threads, 0, c.input<T>(at::dy),
             c.input<T>(at::qkv), q_rstd, k_rstd, parts, s);
      auto acc = [&](size_t i) -> const void* { return c.has(i) ? c.in[i] : nullptr; };
      launch(c, qk_norm_weight_sums, columns, threads, 0, parts, chunks_of(s), c.out[to::dq], c.out[to::dk],
             c.out_value(to::dq).dtype, acc(at::acc_q), acc(at::acc_k), s);
    }
    launch(c, qk_norm_grad_groups<T>, blocks_of(s), threads, 0, c.input<T>(at::dy), c.input<T>(at::qkv),
           weight(at::q_weight), weight(at::k_weight), q_rstd, k_rstd, c.output<T>(to::dqkv), s);
  });
}

}  // namespace

Kernel qk_norm_kernel() {
  return {"qk_norm", "cuda.qk_norm", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_qk_norm)};
}
Kernel qk_norm_grad_kernel() {
  return {"qk_norm_grad",
          "cuda.qk_norm_grad",
          reject_unless_float,
          grad_workspace,
          nullptr,
          CREST_DEVICE_CODE(launch_qk_norm_grad)};
}

}  // namespace crest::cuda
