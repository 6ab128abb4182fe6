// qk_norm and its gradient. A token has groups: those of queries and of keys share a mean (a head,
// or all heads), those of values are copied. Three ways, by the size of a group:
//   heads: some lanes of a warp, 16 bytes each. In the gradient, they keep their group, so weights
//   and sums over tokens stay in registers.
//   rows: a block, with a group in registers.
//   any: some lanes, which read a group twice.
#include <climits>
#include <numeric>

#include "backend/cuda/device/any_float.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 128, head_threads = 256, row_threads = 256;
constexpr int most_chunks = 256;
// Of gradients by heads and by rows: fixed, so sums have the same order on all devices.
constexpr int most_head_blocks = 528, most_row_blocks = 132;
// Tokens of a block by rows, loaded before it uses the first.
constexpr int row_tokens = 2;

struct QkShape {
  int64_t tokens;
  int width;
  int q_cols, k_cols;  // elements of a group
  int q_groups, k_groups, v_groups;
  int vector, lanes;  // elements of an access, and lanes of a group
  bool heads;         // a group of queries or keys is one access of its lanes
  int units;          // accesses of a thread for a group, if a block works on it; 0: it does not
  __host__ __device__ int groups() const { return q_groups + k_groups + v_groups; }
  __device__ bool queries(int g) const { return g < q_groups; }
  __device__ bool values(int g) const { return g >= q_groups + k_groups; }
  __device__ int cols(int g) const { return queries(g) ? q_cols : k_cols; }
  // The first element of a group in the row of its token.
  __device__ int first(int g) const { return queries(g) ? g * q_cols : q_groups * q_cols + (g - q_groups) * k_cols; }
};

QkShape shape_of(const Value& qkv, const Attrs& a) {
  const int heads = int(a.integer("heads")), kv_heads = int(a.integer("kv_heads"));
  QkShape s = {};
  s.width = int(qkv.shape.back()), s.tokens = qkv.numel() / s.width;
  const int dim = s.width / (heads + 2 * kv_heads);
  const bool by_head = a.text("per") == "head";
  s.q_cols = by_head ? dim : heads * dim, s.k_cols = by_head ? dim : kv_heads * dim;
  s.q_groups = by_head ? heads : 1, s.k_groups = s.v_groups = by_head ? kv_heads : 1;
  const int whole = 16 / int(size_of(qkv.dtype));
  s.vector = dim % whole == 0 ? whole : 1;
  s.lanes = 1;
  while (s.lanes < 32 && s.lanes * s.vector < s.q_cols) s.lanes *= 2;
  s.heads = by_head && s.lanes * s.vector >= s.q_cols;
  const int units = (s.q_cols + row_threads * s.vector - 1) / (row_threads * s.vector);
  s.units = !by_head && s.vector > 1 && units <= 2 ? units : 0;
  return s;
}

// The group of this thread's lanes. Without one (behind the last token) they still take part in
// sums, and `there` is false.
struct Group {
  int64_t token;
  int g, lane;
  bool there;
  __device__ Group(const QkShape& s, int64_t item) : lane(int(threadIdx.x) % s.lanes) {
    const unsigned groups = unsigned(s.groups());
    there = item < s.tokens * groups;
    token = !there ? 0 : item < INT_MAX ? unsigned(item) / groups : item / groups;
    g = there ? int(item - token * groups) : 0;
  }
};
__device__ inline int64_t item_of(const QkShape& s) {
  return (int64_t(blockIdx.x) * threads + int(threadIdx.x)) / s.lanes;
}
__device__ inline float group_sum(float x, int lanes) {
  for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

template <int N, class T>
__device__ inline void load_weights(const T* weight, int c, bool inside, float (&w)[N]) {
  for (int i = 0; i < N; ++i) w[i] = 1;
  if (weight && inside) load_floats<N>(weight + c, w);
}

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

// Lanes keep one group, of every `step`-th token: the grid has a multiple of the groups in lanes.
template <int N, class T>
__global__ void __launch_bounds__(head_threads)
    qk_norm_grad_heads(const T* dy, const T* x, const T* q_weight, const T* k_weight, const float* q_rstd,
                       const float* k_rstd, T* dx, float* parts, QkShape s) {
  wait_for_predecessors();
  const int subs = head_threads / s.lanes, sub = int(threadIdx.x) / s.lanes, lane = int(threadIdx.x) % s.lanes;
  const unsigned mine = blockIdx.x * unsigned(subs) + unsigned(sub), groups = unsigned(s.groups());
  const int g = int(mine % groups), c = lane * N;
  const int64_t step = gridDim.x * unsigned(subs) / groups;
  const bool queries = s.queries(g), values = s.values(g), inside = c < s.q_cols;
  const float* rstds = queries ? q_rstd + g : k_rstd + (g - s.q_groups);
  const int of_token = queries ? s.q_groups : s.k_groups;
  float w[N], sums[N] = {};
  load_weights<N>(values ? nullptr : queries ? q_weight : k_weight, c, inside, w);
  // All lanes of a warp take part in sums, also for tokens behind the last.
  for (int64_t first = 0; first < s.tokens; first += step) {
    const int64_t token = first + mine / groups, offset = token * s.width + s.first(g) + c;
    const bool there = inside && token < s.tokens;
    float d[N] = {}, n[N] = {}, rstd = 1, sum = 0;
    if (there) load_floats<N>(dy + offset, d);
    if (there && !values) load_floats<N>(x + offset, n), rstd = rstds[token * of_token];
    for (int i = 0; i < N; ++i) {
      n[i] *= rstd;
      sums[i] += d[i] * n[i];
      d[i] *= w[i];
      sum += d[i] * n[i];
    }
    const float mean = group_sum(sum, s.lanes) / float(s.q_cols);
    if (!values)
      for (int i = 0; i < N; ++i) d[i] = rstd * (d[i] - n[i] * mean);
    if (there) store_floats<N>(dx + offset, d);
  }
  if (!parts) return;
  // The lanes with the same columns, in their order.
  __shared__ float of_lanes[head_threads][N];
  __shared__ int group_of[head_threads];
  for (int i = 0; i < N; ++i) of_lanes[threadIdx.x][i] = sums[i];
  group_of[threadIdx.x] = g;
  __syncthreads();
  for (int column = int(threadIdx.x); column < s.q_cols + s.k_cols; column += head_threads) {
    const bool keys = column >= s.q_cols;
    const int of = keys ? column - s.q_cols : column;
    float total = 0;
    for (int t = of / N; t < head_threads; t += s.lanes)
      if (!s.values(group_of[t]) && s.queries(group_of[t]) != keys) total += of_lanes[t][of % N];
    parts[int64_t(column) * gridDim.x + blockIdx.x] = total;
  }
}

// A block has a range of the tokens: their queries (blockIdx.y 0), keys (1) or values (2).
template <int N, int Units, class T>
__global__ void __launch_bounds__(row_threads)
    qk_norm_grad_rows(const T* dy, const T* x, const T* q_weight, const T* k_weight, const float* q_rstd,
                      const float* k_rstd, T* dx, float* parts, QkShape s) {
  wait_for_predecessors();
  constexpr int K = row_tokens;
  const int g = int(blockIdx.y), cols = s.cols(g);
  const bool queries = s.queries(g), values = s.values(g);
  const int64_t begin = s.tokens * blockIdx.x / gridDim.x, end = s.tokens * (blockIdx.x + 1) / gridDim.x;
  float w[Units][N], of_weight[Units][N] = {};
  auto column = [&](int u) { return (u * row_threads + int(threadIdx.x)) * N; };
#pragma unroll
  for (int u = 0; u < Units; ++u)
    load_weights<N>(values ? nullptr : queries ? q_weight : k_weight, column(u), column(u) < cols, w[u]);
  for (int64_t first = begin; first < end; first += K) {
    float d[K][Units][N] = {}, n[K][Units][N] = {}, rstd[K] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (first + k >= end) continue;
      const int64_t row = (first + k) * s.width + s.first(g);
      if (!values) rstd[k] = (queries ? q_rstd : k_rstd)[first + k];
#pragma unroll
      for (int u = 0; u < Units; ++u) {
        if (column(u) >= cols) continue;
        load_floats<N>(dy + row + column(u), d[k][u]);
        if (!values) load_floats<N>(x + row + column(u), n[k][u]);
      }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float sum = 0;
#pragma unroll
      for (int u = 0; u < Units; ++u)
        for (int i = 0; i < N; ++i) {
          n[k][u][i] *= rstd[k];
          of_weight[u][i] += d[k][u][i] * n[k][u][i];
          d[k][u][i] *= w[u][i];
          sum += d[k][u][i] * n[k][u][i];
        }
      const float mean = values ? 0.f : block_sum<row_threads>(sum) / float(cols);
      if (first + k >= end) continue;
      const int64_t row = (first + k) * s.width + s.first(g);
#pragma unroll
      for (int u = 0; u < Units; ++u) {
        if (column(u) >= cols) continue;
        if (!values)
          for (int i = 0; i < N; ++i) d[k][u][i] = rstd[k] * (d[k][u][i] - n[k][u][i] * mean);
        store_floats<N>(dx + row + column(u), d[k][u]);
      }
    }
  }
  if (!parts || values) return;
#pragma unroll
  for (int u = 0; u < Units; ++u) {
    if (column(u) >= cols) continue;
    for (int i = 0; i < N; ++i)
      parts[int64_t((queries ? 0 : s.q_cols) + column(u) + i) * gridDim.x + blockIdx.x] = of_weight[u][i];
  }
}

template <int N, class T>
__global__ void __launch_bounds__(threads)
    qk_norm_grad_any(const T* dy, const T* x, const T* q_weight, const T* k_weight, const float* q_rstd,
                     const float* k_rstd, T* dx, QkShape s) {
  wait_for_predecessors();
  const Group at(s, item_of(s));
  const bool queries = s.queries(at.g), values = s.values(at.g);
  const int cols = s.cols(at.g), step = s.lanes * N;
  const int64_t begin = at.token * s.width + s.first(at.g);
  const T* weight = values ? nullptr : queries ? q_weight : k_weight;
  float rstd = 1;
  if (!values)
    rstd = queries ? q_rstd[at.token * s.q_groups + at.g] : k_rstd[at.token * s.k_groups + at.g - s.q_groups];
  float d[N] = {}, n[N] = {}, w[N] = {}, sum = 0;
  auto load = [&](int c) {
    load_floats<N>(dy + begin + c, d);
    if (values) return;
    load_floats<N>(x + begin + c, n), load_weights<N>(weight, c, true, w);
    for (int i = 0; i < N; ++i) n[i] *= rstd, d[i] *= w[i];
  };
  for (int c = at.lane * N; c < cols; c += step) {
    load(c);
    for (int i = 0; i < N; ++i) sum += d[i] * n[i];
  }
  const float mean = group_sum(sum, s.lanes) / float(cols);
  if (!at.there) return;
  for (int c = at.lane * N; c < cols; c += step) {
    load(c);
    if (!values)
      for (int i = 0; i < N; ++i) d[i] = rstd * (d[i] - n[i] * mean);
    store_floats<N>(dx + begin + c, d);
  }
}

// For qk_norm_grad_any: sums of dy n over the tokens of a chunk, for every element of both weights.
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
  parts[int64_t(column) * gridDim.y + blockIdx.y] = sum;
}

// A warp for each element of both weights.
__global__ void __launch_bounds__(threads)
    qk_norm_weight_sums(const float* parts, int count, void* dq, void* dk, DType t, const void* acc_q,
                        const void* acc_k, QkShape s) {
  wait_for_predecessors();
  const int column = int(blockIdx.x) * (threads / 32) + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (column >= s.q_cols + s.k_cols) return;
  const bool keys = column >= s.q_cols;
  const int c = keys ? column - s.q_cols : column;
  float sum[1] = {0}, before[1] = {0};
  for (int part = lane; part < count; part += 32) sum[0] += parts[int64_t(column) * count + part];
  sum[0] = warp_sum(sum[0]);
  if (lane != 0) return;
  const void* acc = keys ? acc_k : acc_q;
  if (acc) load_any(acc, t, c, before);
  sum[0] += before[0];
  store_any(keys ? dk : dq, t, c, sum);
}

// Calls f with the elements of an access as a constant.
template <class T, class F>
void with_access(const QkShape& s, F f) {
  constexpr int whole = 16 / int(sizeof(T));
  s.vector == 1 ? f(std::integral_constant<int, 1>()) : f(std::integral_constant<int, whole>());
}

QkShape without_values(QkShape s, bool in_place) {
  if (in_place) s.v_groups = 0;
  return s;
}

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

// Parts of the sums for the weights. By heads and by rows a block makes one.
int parts_of(const QkShape& s) {
  if (s.heads) {
    const int subs = head_threads / s.lanes, unit = s.groups() / std::gcd(s.groups(), subs);
    const int wanted = int(std::min<int64_t>(blocks_for(s.tokens * s.groups(), subs), most_head_blocks));
    return std::max(wanted / unit, 1) * unit;
  }
  if (s.units) return int(std::clamp<int64_t>(s.tokens / row_tokens, 1, most_row_blocks));
  return int(std::clamp<int64_t>(s.tokens / 32, 1, most_chunks));
}

size_t grad_workspace(const KernelQuery& q) {
  if (!q.has(in::qk_norm_grad::q_weight)) return 0;
  const QkShape s = shape_of(q.in(in::qk_norm_grad::qkv), q.instr.attrs);
  const int parts = std::max(parts_of(s), parts_of(without_values(s, true)));
  return size_t(parts) * size_t(s.q_cols + s.k_cols) * sizeof(float);
}

void launch_qk_norm_grad(const KernelCall& c) {
  namespace at = in::qk_norm_grad;
  namespace to = out::qk_norm_grad;
  const Value& dy = c.in_value(at::dy);
  const QkShape s = without_values(shape_of(c.in_value(at::qkv), c.instr.attrs), c.in[at::dy] == c.out[to::dqkv]);
  const int count = parts_of(s), columns = s.q_cols + s.k_cols;
  auto *q_rstd = c.input<float>(at::q_rstd), *k_rstd = c.input<float>(at::k_rstd);
  const bool weights = c.has(at::q_weight);
  auto* parts = weights ? static_cast<float*>(c.workspace) : nullptr;
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    auto start = [&](auto kernel, dim3 blocks, int block, auto... parts_if_any) {
      launch(c, kernel, blocks, block, 0, c.input<T>(at::dy), c.input<T>(at::qkv), weight(at::q_weight),
             weight(at::k_weight), q_rstd, k_rstd, c.output<T>(to::dqkv), parts_if_any..., s);
    };
    with_access<T>(s, [&](auto n) {
      if (s.heads) {
        start(qk_norm_grad_heads<n.value, T>, unsigned(count), head_threads, parts);
      } else if (s.units) {
        start(s.units == 1 ? qk_norm_grad_rows<n.value, 1, T> : qk_norm_grad_rows<n.value, 2, T>,
              dim3(unsigned(count), unsigned(s.groups())), row_threads, parts);
      } else {
        if (weights)  // before dqkv, which may be dy
          launch(c, qk_norm_weight_parts<T>, dim3(blocks_for(columns, threads), unsigned(count)), threads, 0,
                 c.input<T>(at::dy), c.input<T>(at::qkv), q_rstd, k_rstd, parts, s);
        start(qk_norm_grad_any<n.value, T>, blocks_for(s.tokens * s.groups(), threads / s.lanes), threads);
      }
    });
    if (!weights) return;
    auto acc = [&](size_t i) -> const void* { return c.has(i) ? c.in[i] : nullptr; };
    launch(c, qk_norm_weight_sums, blocks_for(columns, threads / 32), threads, 0, parts, count, c.out[to::dq],
           c.out[to::dk], c.out_value(to::dq).dtype, acc(at::acc_q), acc(at::acc_k), s);
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
