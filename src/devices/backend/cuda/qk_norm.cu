// The forward pass of qk_norm.
#include "backend/cuda/qk_norm.h"

namespace crest::cuda::qk {

namespace {

// `s` has no groups of values if y is x.
template <int N, class T>
__global__ void __launch_bounds__(threads) qk_norm_heads(const T* x, const T* q_weight, const T* k_weight, T* y,
                                                         float* q_rstd, float* k_rstd, QkShape s, float eps) {
  wait_for_predecessors();
  const Group at(s, item_of(s));
  const bool queries = s.queries(at.g), values = s.values(at.g);
  const int c = at.lane * N;
  const bool inside = at.there && c < s.q_cols;
  const int64_t first = at.token * s.width + s.first(at.g) + c;
  float e[N] = {}, w[N], squares = 0;
  if (inside) load_floats<N>(x + first, e);
  load_weights<N>(values ? nullptr : queries ? q_weight : k_weight, c, inside, w);
  for (int i = 0; i < N; ++i) squares += e[i] * e[i];
  const float rstd = rsqrtf(group_sum(squares, s.lanes) / float(s.q_cols) + eps);
  if (!inside) return;
  if (at.lane == 0 && !values) {
    if (queries)
      q_rstd[at.token * s.q_groups + at.g] = rstd;
    else
      k_rstd[at.token * s.k_groups + at.g - s.q_groups] = rstd;
  }
  if (!values)
    for (int i = 0; i < N; ++i) e[i] *= rstd * w[i];
  store_floats<N>(y + first, e);
}

// A block for a token's queries (blockIdx.y 0), keys (1) or values (2).
template <int N, int Units, class T>
__global__ void __launch_bounds__(row_threads) qk_norm_rows(const T* x, const T* q_weight, const T* k_weight, T* y,
                                                            float* q_rstd, float* k_rstd, QkShape s, float eps) {
  wait_for_predecessors();
  const int g = int(blockIdx.y), cols = s.cols(g);
  const int64_t token = blockIdx.x, begin = token * s.width + s.first(g);
  float e[Units][N] = {}, squares = 0;
#pragma unroll
  for (int u = 0; u < Units; ++u) {
    const int c = (u * row_threads + int(threadIdx.x)) * N;
    if (c < cols) load_floats<N>(x + begin + c, e[u]);
    for (int i = 0; i < N; ++i) squares += e[u][i] * e[u][i];
  }
  float rstd = 1;
  if (!s.values(g)) {
    rstd = rsqrtf(block_sum<row_threads>(squares) / float(cols) + eps);
    if (threadIdx.x == 0) (s.queries(g) ? q_rstd : k_rstd)[token] = rstd;
  }
  const T* weight = s.values(g) ? nullptr : s.queries(g) ? q_weight : k_weight;
#pragma unroll
  for (int u = 0; u < Units; ++u) {
    const int c = (u * row_threads + int(threadIdx.x)) * N;
    if (c >= cols) continue;
    float w[N];
    load_weights<N>(weight, c, true, w);
    for (int i = 0; i < N; ++i) e[u][i] *= rstd * w[i];
    store_floats<N>(y + begin + c, e[u]);
  }
}

template <int N, class T>
__global__ void __launch_bounds__(threads) qk_norm_any(const T* x, const T* q_weight, const T* k_weight, T* y,
                                                       float* q_rstd, float* k_rstd, QkShape s, float eps) {
  wait_for_predecessors();
  const Group at(s, item_of(s));
  const int cols = s.cols(at.g), step = s.lanes * N;
  const T* weight = s.queries(at.g) ? q_weight : k_weight;
  x += at.token * s.width + s.first(at.g), y += at.token * s.width + s.first(at.g);
  float e[N] = {}, squares = 0;
  for (int c = at.lane * N; c < cols; c += step) {
    load_floats<N>(x + c, e);
    for (int i = 0; i < N; ++i) squares += e[i] * e[i];
  }
  const float rstd = rsqrtf(group_sum(squares, s.lanes) / float(cols) + eps);
  const bool values = s.values(at.g);
  if (!at.there || (values && x == y)) return;
  if (at.lane == 0 && !values) {
    if (s.queries(at.g))
      q_rstd[at.token * s.q_groups + at.g] = rstd;
    else
      k_rstd[at.token * s.k_groups + at.g - s.q_groups] = rstd;
  }
  for (int c = at.lane * N; c < cols; c += step) {
    load_floats<N>(x + c, e);
    if (!values)
      for (int i = 0; i < N; ++i) e[i] *= rstd * (weight ? widen(weight[c + i]) : 1.f);
    store_floats<N>(y + c, e);
  }
}

// Gradient: dx = rstd (g - n mean(g n)) with n = x rstd and g = dy weight. dx may be dy; then `s`
// has no groups of values. `parts` may be null, else every block leaves its sums of dy n by element
// of both weights there.

void launch_qk_norm(const KernelCall& c) {
  namespace at = in::qk_norm;
  namespace to = out::qk_norm;
  const Value& x = c.in_value(at::qkv);
  const QkShape s = without_values(shape_of(x, c.instr.attrs), c.in[at::qkv] == c.out[to::y]);
  const int64_t groups = s.tokens * s.groups();
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    auto start = [&](auto kernel, dim3 blocks, int block) {
      launch(c, kernel, blocks, block, 0, c.input<T>(at::qkv), weight(at::q_weight), weight(at::k_weight),
             c.output<T>(to::y), c.output<float>(to::q_rstd), c.output<float>(to::k_rstd), s,
             float(c.instr.attrs.number("eps")));
    };
    with_access<T>(s, [&](auto n) {
      if (s.heads)
        start(qk_norm_heads<n.value, T>, blocks_for(groups, threads / s.lanes), threads);
      else if (s.units)
        start(s.units == 1 ? qk_norm_rows<n.value, 1, T> : qk_norm_rows<n.value, 2, T>,
              dim3(unsigned(s.tokens), unsigned(s.groups())), row_threads);
      else
        start(qk_norm_any<n.value, T>, blocks_for(groups, threads / s.lanes), threads);
    });
  });
}

}  // namespace

}  // namespace crest::cuda::qk

namespace crest::cuda {

Kernel qk_norm_kernel() {
  return {"qk_norm", "cuda.qk_norm", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(qk::launch_qk_norm)};
}

}  // namespace crest::cuda
