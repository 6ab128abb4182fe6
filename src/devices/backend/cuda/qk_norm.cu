// qk_norm and its gradient. A token has groups: those of queries and of keys share a mean (a head,
// or all heads), those of values are copied. Some lanes of a warp work on a group, with 16 bytes
// each.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 128;
constexpr int most_chunks = 256;
// Of the gradient by heads: fixed, so that the order of its sums is the same on all devices.
constexpr int most_blocks = 2048;

struct QkShape {
  int64_t tokens;
  int width;
  int q_cols, k_cols;  // elements of a group
  int q_groups, k_groups, v_groups;
  int vector, lanes;  // elements of an access, and lanes of a group
  bool one;           // a group is one access of its lanes
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
  s.one = s.lanes * s.vector >= s.q_cols;
  return s;
}

unsigned blocks_of(const QkShape& s) { return blocks_for(s.tokens * s.groups(), threads / s.lanes); }

// The group of this thread's lanes. Without one (behind the last token) they still take part in
// sums, and `there` is false.
struct Group {
  int64_t token;
  int g, lane;
  bool there;
  __device__ Group(const QkShape& s, int64_t item) : lane(int(threadIdx.x) % s.lanes) {
    there = item < s.tokens * s.groups();
    token = there ? item / s.groups() : 0, g = there ? int(item - token * s.groups()) : 0;
  }
};
__device__ inline int64_t item_of(const QkShape& s) {
  return (int64_t(blockIdx.x) * threads + int(threadIdx.x)) / s.lanes;
}
__device__ inline float group_sum(float x, int lanes) {
  for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

template <int N, bool One, class T>
__global__ void __launch_bounds__(threads) qk_norm_groups(const T* x, const T* q_weight, const T* k_weight, T* y,
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
    if (!One) load_floats<N>(x + c, e);
    if (!values)
      for (int i = 0; i < N; ++i) e[i] *= rstd * (weight ? widen(weight[c + i]) : 1.f);
    store_floats<N>(y + c, e);
  }
}

// dx = rstd (g - n mean(g n)) with n = x rstd and g = dy weight. dx may be dy. One: a block takes
// every gridDim.x-th part, and leaves its sums of dy n by element of both weights in `parts` (may
// be null).
template <int N, bool One, class T>
__global__ void __launch_bounds__(threads)
    qk_norm_grad_groups(const T* dy, const T* x, const T* q_weight, const T* k_weight, const float* q_rstd,
                        const float* k_rstd, T* dx, float* parts, QkShape s) {
  wait_for_predecessors();
  float of_queries[N] = {}, of_keys[N] = {};
  const int64_t all = (s.tokens * s.groups() * s.lanes + threads - 1) / threads;
  for (int64_t block = blockIdx.x; block < all; block += gridDim.x) {
    const Group at(s, (block * threads + int(threadIdx.x)) / s.lanes);
    const bool queries = s.queries(at.g), values = s.values(at.g);
    const int cols = s.cols(at.g), step = s.lanes * N;
    const int64_t begin = at.token * s.width + s.first(at.g);
    const T* weight = queries ? q_weight : k_weight;
    float rstd = 1;
    if (!values)
      rstd = queries ? q_rstd[at.token * s.q_groups + at.g] : k_rstd[at.token * s.k_groups + at.g - s.q_groups];
    float d[N] = {}, n[N] = {}, sum = 0;
    auto load = [&](int c) {
      load_floats<N>(dy + begin + c, d);
      if (values) return;
      load_floats<N>(x + begin + c, n);
      for (int i = 0; i < N; ++i) n[i] *= rstd;
    };
    auto weigh = [&](int c) {
      if (weight && !values)
        for (int i = 0; i < N; ++i) d[i] *= widen(weight[c + i]);
    };
    for (int c = at.lane * N; c < cols; c += step) {
      load(c);
      if (One && parts && at.there && !values)
        for (int i = 0; i < N; ++i) {
          of_queries[i] += queries ? d[i] * n[i] : 0.f;
          of_keys[i] += queries ? 0.f : d[i] * n[i];
        }
      weigh(c);
      for (int i = 0; i < N; ++i) sum += d[i] * n[i];
    }
    const float mean = group_sum(sum, s.lanes) / float(cols);
    if (!at.there || (values && dx == dy)) continue;
    for (int c = at.lane * N; c < cols; c += step) {
      if (!One) load(c), weigh(c);
      if (!values)
        for (int i = 0; i < N; ++i) d[i] = rstd * (d[i] - n[i] * mean);
      store_floats<N>(dx + begin + c, d);
    }
  }
  if constexpr (One) {
    if (!parts) return;
    // The lanes with the same columns, in their order.
    __shared__ float sums[2][threads][N];
    for (int i = 0; i < N; ++i) sums[0][threadIdx.x][i] = of_queries[i], sums[1][threadIdx.x][i] = of_keys[i];
    __syncthreads();
    const int columns = s.q_cols + s.k_cols;
    for (int column = int(threadIdx.x); column < columns; column += threads) {
      const bool keys = column >= s.q_cols;
      const int c = keys ? column - s.q_cols : column;
      float total = 0;
      for (int t = c / N; t < threads; t += s.lanes) total += sums[keys][t][c % N];
      parts[int64_t(column) * gridDim.x + blockIdx.x] = total;
    }
  }
}

// Rows: sums of dy n over the tokens of a chunk, for every element of both weights.
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

// Calls f with N and One as constants.
template <class T, class F>
void with_access(const QkShape& s, F f) {
  constexpr int whole = 16 / int(sizeof(T));
  if (s.vector == 1)
    s.one ? f(std::integral_constant<int, 1>(), std::true_type())
          : f(std::integral_constant<int, 1>(), std::false_type());
  else
    s.one ? f(std::integral_constant<int, whole>(), std::true_type())
          : f(std::integral_constant<int, whole>(), std::false_type());
}

void launch_qk_norm(const KernelCall& c) {
  namespace at = in::qk_norm;
  const Value& x = c.in_value(at::qkv);
  const QkShape s = shape_of(x, c.instr.attrs);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    with_access<T>(s, [&](auto n, auto one) {
      launch(c, qk_norm_groups<n.value, one.value, T>, blocks_of(s), threads, 0, c.input<T>(at::qkv),
             weight(at::q_weight), weight(at::k_weight), c.output<T>(out::qk_norm::y),
             c.output<float>(out::qk_norm::q_rstd), c.output<float>(out::qk_norm::k_rstd), s,
             float(c.instr.attrs.number("eps")));
    });
  });
}

unsigned grad_blocks(const QkShape& s) { return s.one ? std::min<unsigned>(blocks_of(s), most_blocks) : blocks_of(s); }
// Parts of the sums for the weights.
int parts_of(const QkShape& s) {
  return s.one ? int(grad_blocks(s)) : int(std::clamp<int64_t>(s.tokens / 32, 1, most_chunks));
}

size_t grad_workspace(const KernelQuery& q) {
  const QkShape s = shape_of(q.in(in::qk_norm_grad::qkv), q.instr.attrs);
  return q.has(in::qk_norm_grad::q_weight) ? size_t(parts_of(s)) * size_t(s.q_cols + s.k_cols) * sizeof(float) : 0;
}

void launch_qk_norm_grad(const KernelCall& c) {
  namespace at = in::qk_norm_grad;
  namespace to = out::qk_norm_grad;
  const Value& dy = c.in_value(at::dy);
  const QkShape s = shape_of(c.in_value(at::qkv), c.instr.attrs);
  const unsigned columns = blocks_for(s.q_cols + s.k_cols, threads);
  auto *q_rstd = c.input<float>(at::q_rstd), *k_rstd = c.input<float>(at::k_rstd);
  const bool weights = c.has(at::q_weight);
  auto* parts = weights ? static_cast<float*>(c.workspace) : nullptr;
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    if (weights && !s.one)  // before dqkv, which may be dy
      launch(c, qk_norm_weight_parts<T>, dim3(columns, unsigned(parts_of(s))), threads, 0, c.input<T>(at::dy),
             c.input<T>(at::qkv), q_rstd, k_rstd, parts, s);
    with_access<T>(s, [&](auto n, auto one) {
      launch(c, qk_norm_grad_groups<n.value, one.value, T>, grad_blocks(s), threads, 0, c.input<T>(at::dy),
             c.input<T>(at::qkv), weight(at::q_weight), weight(at::k_weight), q_rstd, k_rstd, c.output<T>(to::dqkv),
             parts, s);
    });
    if (!weights) return;
    auto acc = [&](size_t i) -> const void* { return c.has(i) ? c.in[i] : nullptr; };
    launch(c, qk_norm_weight_sums, blocks_for(s.q_cols + s.k_cols, threads / 32), threads, 0, parts, parts_of(s),
           c.out[to::dq], c.out[to::dk], c.out_value(to::dq).dtype, acc(at::acc_q), acc(at::acc_k), s);
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
