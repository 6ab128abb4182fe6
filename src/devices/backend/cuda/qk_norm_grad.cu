// The gradient of qk_norm.
#include <numeric>

#include "backend/cuda/device/any_float.h"
#include "backend/cuda/device/rows_copy.h"
#include "backend/cuda/device/rows_pack.h"
#include "backend/cuda/qk_norm.h"

namespace crest::cuda::qk {

namespace {

constexpr int head_threads = 256, most_chunks = 256;
// Of gradients by heads and, in threads, by rows. Fixed, so the order of sums does not depend on
// the number of multiprocessors.
constexpr int most_head_blocks = 528, most_row_threads = 528 * 128;
// Groups in shared memory by rows: one in work, the others on their way.
constexpr int row_stages = 3;

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

// By rows. Blocks of queries come first, then those of keys, then those of values. parts: for each
// block of queries a row of q_cols sums, then for each block of keys a row of k_cols.
template <class T>
struct RowsGrad {
  const T *dy, *x, *q_weight, *k_weight;  // weights may be null: ones
  const float *q_rstd, *k_rstd;
  T* dx;
  float* parts;
  int64_t tokens;
  int width, q_cols, k_cols;
  int q_blocks, k_blocks, v_blocks;
};

// The sum over a block, the same in all threads. `odd` alternates from one sum to the next, so that
// one barrier is enough.
template <int Threads>
__device__ inline float row_sum(float x, int odd) {
  __shared__ float part[2][Threads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) part[odd][threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int i = 0; i < Threads / 32; ++i) x += part[odd][i];
  return x;
}

// K vectors of 16 bytes in a thread.
template <int Threads, int K, class T>
__global__ void __launch_bounds__(Threads, 512 / Threads) qk_norm_grad_rows(RowsGrad<T> a) {
  wait_for_predecessors();
  constexpr int N = Pack<T>::size;
  CREST_DYNAMIC_SHARED(Pack<T>, shared);  // weights, then [row_stages][dy, x], of `vectors` each
  int block = int(blockIdx.x), blocks = a.q_blocks, cols = a.q_cols, first = 0;
  const bool queries = block < a.q_blocks, values = block >= a.q_blocks + a.k_blocks;
  float* parts = a.parts;
  if (!queries) {
    block -= a.q_blocks, blocks = a.k_blocks, cols = a.k_cols, first = a.q_cols;
    parts += int64_t(a.q_blocks) * a.q_cols;
  }
  if (values) block -= a.k_blocks, blocks = a.v_blocks, first += a.k_cols;
  const int vectors = cols / N, index = int(threadIdx.x);
  auto has = [&](int k) { return index + k * Threads < vectors; };
  auto place = [&](int64_t token, int k) { return token * a.width + first + (index + k * Threads) * N; };
  if (values) {
    for (int64_t token = block; token < a.tokens; token += blocks)
      for (int k = 0; k < K; ++k)
        if (has(k)) store_pack(a.dx + place(token, k), load_pack(a.dy + place(token, k)));
    return;
  }
  Pack<T>* const weights = shared + index;
  Pack<T>* const stage = weights + vectors;
  const float* rstds = queries ? a.q_rstd : a.k_rstd;
  auto fetch = [&](int64_t token, int s) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (token < a.tokens && has(k)) {
        copy_async(stage + 2 * s * vectors + k * Threads, a.dy + place(token, k));
        copy_async(stage + (2 * s + 1) * vectors + k * Threads, a.x + place(token, k));
      }
    commit_copies();
  };
  for (int s = 0; s < row_stages - 1; ++s) fetch(block + int64_t(s) * blocks, s);
  float next_rstd = block < a.tokens ? rstds[block] : 0.f;
  const T* weight = queries ? a.q_weight : a.k_weight;
  // A thread reads its own vectors only, here and below.
  for (int k = 0; k < K; ++k)
    if (has(k)) weights[k * Threads] = weight ? load_pack(weight + (index + k * Threads) * N) : pack_of<T>(1.f);

  float sums[K][N] = {};
  int now = 0, odd = 0;
  for (int64_t token = block; token < a.tokens; token += blocks, odd ^= 1) {
    const float rstd = next_rstd;
    fetch(token + int64_t(row_stages - 1) * blocks, now == 0 ? row_stages - 1 : now - 1);
    if (token + blocks < a.tokens) next_rstd = rstds[token + blocks];
    wait_copies<row_stages - 1>();
    auto load = [&](const Pack<T>* from, int k, float(&to)[N]) {
      Pack<T> v = {};  // a missing vector counts as zeros
      if (has(k)) v = from[k * Threads];
      v.widen_to(to);
    };
    const Pack<T>* const dy = stage + 2 * now * vectors;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[N], n[N], w[N];
      load(dy, k, d), load(dy + vectors, k, n), load(weights, k, w);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float dn = d[i] * (n[i] * rstd);
        sums[k][i] += dn, sum += dn * w[i];
      }
    }
    const float mean = row_sum<Threads>(sum, odd) / float(cols) * rstd;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[N], n[N], w[N];
      load(dy, k, d), load(dy + vectors, k, n), load(weights, k, w);
#pragma unroll
      for (int i = 0; i < N; ++i) d[i] = rstd * (d[i] * w[i] - n[i] * mean);
      if (has(k)) store_pack(a.dx + place(token, k), Pack<T>::narrowed(d));
    }
    now = now + 1 == row_stages ? 0 : now + 1;
  }
  if (!a.parts) return;
  parts += int64_t(block) * cols;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < N; i += 4)
      if (has(k))
        *reinterpret_cast<float4*>(parts + (index + k * Threads) * N + i) = {sums[k][i], sums[k][i + 1], sums[k][i + 2],
                                                                             sums[k][i + 3]};
}

// Adds up the parts of qk_norm_grad_rows, 32 columns a block.
__global__ void __launch_bounds__(512)
    qk_norm_row_sums(const float* parts, int q_blocks, int k_blocks, int q_cols, int k_cols, void* dq, void* dk,
                     DType t, const void* acc_q, const void* acc_k) {
  wait_for_predecessors();
  __shared__ float of_warps[16][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, column = int(blockIdx.x) * 32 + lane;
  const bool keys = column >= q_cols;
  const int c = keys ? column - q_cols : column, cols = keys ? k_cols : q_cols, blocks = keys ? k_blocks : q_blocks;
  if (keys) parts += int64_t(q_blocks) * q_cols;
  float sum[1] = {0}, before[1] = {0};
  if (c < cols) {
#pragma unroll 8
    for (int b = warp; b < blocks; b += 16) sum[0] += parts[int64_t(b) * cols + c];
  }
  of_warps[warp][lane] = sum[0];
  __syncthreads();
  if (warp != 0 || c >= cols) return;
  sum[0] = 0;
  for (int i = 0; i < 16; ++i) sum[0] += of_warps[i][lane];
  const void* acc = keys ? acc_k : acc_q;
  if (acc) load_any(acc, t, c, before);
  sum[0] += before[0];
  store_any(keys ? dk : dq, t, c, sum);
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

// Of the gradient by rows.
struct RowsPlan {
  int threads = 0;  // of a block; 0: rows are too long
  int vectors = 0;  // of a thread
  int q_blocks = 0, k_blocks = 0, v_blocks = 0;
  int blocks() const { return q_blocks + k_blocks + v_blocks; }
  int64_t parts(const QkShape& s) const { return int64_t(q_blocks) * s.q_cols + int64_t(k_blocks) * s.k_cols; }
};

// Dynamic shared memory of a block.
int64_t rows_shared(const QkShape& s, int64_t size) { return (1 + 2 * row_stages) * s.q_cols * size; }

RowsPlan rows_plan(const QkShape& s, DType t, const Device& device) {
  RowsPlan plan;
  const int64_t size = int64_t(size_of(t)), vectors = s.q_cols / s.vector;
  if (!s.by_row || s.vector == 1 || rows_shared(s, size) > device.shared_per_block - 1024) return plan;
  for (auto [threads, most] : {std::pair{128, 2}, {256, 3}, {512, 3}})
    if (plan.threads == 0 && vectors <= threads * most)
      plan.threads = threads, plan.vectors = int((vectors + threads - 1) / threads);
  if (plan.threads == 0) return plan;
  // In proportion to the bytes that are read and written, and at least four tokens for a block.
  const double q = 3.0 * s.q_cols, k = 3.0 * s.k_cols, v = s.v_groups ? 2.0 * s.k_cols : 0.0;
  auto share = [&](double part) {
    const auto wanted = int64_t(most_row_threads / plan.threads * part / (q + k + v));
    return int(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(s.tokens / 4, 1)));
  };
  plan.q_blocks = share(q), plan.k_blocks = share(k), plan.v_blocks = v > 0 ? share(v) : 0;
  return plan;
}

// Parts of the sums for the weights. By heads a block makes one.
int parts_of(const QkShape& s) {
  if (s.heads) {
    const int subs = head_threads / s.lanes, unit = s.groups() / std::gcd(s.groups(), subs);
    const int wanted = int(std::min<int64_t>(blocks_for(s.tokens * s.groups(), subs), most_head_blocks));
    return std::max(wanted / unit, 1) * unit;
  }
  return int(std::clamp<int64_t>(s.tokens / 32, 1, most_chunks));
}

size_t grad_workspace(const KernelQuery& q) {
  if (!q.has(in::qk_norm_grad::q_weight)) return 0;
  const QkShape s = shape_of(q.in(in::qk_norm_grad::qkv), q.instr.attrs);
  auto elements = [&](const QkShape& shape) {
    const RowsPlan rows = rows_plan(shape, q.in(in::qk_norm_grad::qkv).dtype, q.device);
    return rows.threads ? rows.parts(shape) : int64_t(parts_of(shape)) * (shape.q_cols + shape.k_cols);
  };
  return size_t(std::max(elements(s), elements(without_values(s, true)))) * sizeof(float);
}

template <class T>
void start_rows(const KernelCall& c, const RowsPlan& plan, const RowsGrad<T>& a, size_t shared) {
  auto start = [&](auto kernel) { launch(c, kernel, unsigned(plan.blocks()), plan.threads, shared, a); };
  if (plan.threads == 128)
    start(plan.vectors == 1 ? qk_norm_grad_rows<128, 1, T> : qk_norm_grad_rows<128, 2, T>);
  else if (plan.threads == 256)
    start(plan.vectors == 2 ? qk_norm_grad_rows<256, 2, T> : qk_norm_grad_rows<256, 3, T>);
  else
    start(plan.vectors == 2 ? qk_norm_grad_rows<512, 2, T> : qk_norm_grad_rows<512, 3, T>);
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
  auto acc = [&](size_t i) -> const void* { return c.has(i) ? c.in[i] : nullptr; };
  const RowsPlan rows = rows_plan(s, dy.dtype, *c.device);
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    auto weight = [&](size_t i) { return c.has(i) ? c.input<T>(i) : nullptr; };
    if (rows.threads) {
      const RowsGrad<T> a = {c.input<T>(at::dy),
                             c.input<T>(at::qkv),
                             weight(at::q_weight),
                             weight(at::k_weight),
                             q_rstd,
                             k_rstd,
                             c.output<T>(to::dqkv),
                             parts,
                             s.tokens,
                             s.width,
                             s.q_cols,
                             s.k_cols,
                             rows.q_blocks,
                             rows.k_blocks,
                             rows.v_blocks};
      start_rows(c, rows, a, size_t(rows_shared(s, sizeof(T))));
      if (weights)
        launch(c, qk_norm_row_sums, blocks_for(columns, 32), 512, 0, parts, rows.q_blocks, rows.k_blocks, s.q_cols,
               s.k_cols, c.out[to::dq], c.out[to::dk], c.out_value(to::dq).dtype, acc(at::acc_q), acc(at::acc_k));
      return;
    }
    auto start = [&](auto kernel, dim3 blocks, int block, auto... parts_if_any) {
      launch(c, kernel, blocks, block, 0, c.input<T>(at::dy), c.input<T>(at::qkv), weight(at::q_weight),
             weight(at::k_weight), q_rstd, k_rstd, c.output<T>(to::dqkv), parts_if_any..., s);
    };
    with_access<T>(s, [&](auto n) {
      if (s.heads) {
        start(qk_norm_grad_heads<n.value, T>, unsigned(count), head_threads, parts);
      } else {
        if (weights)  // before dqkv, which may be dy
          launch(c, qk_norm_weight_parts<T>, dim3(blocks_for(columns, threads), unsigned(count)), threads, 0,
                 c.input<T>(at::dy), c.input<T>(at::qkv), q_rstd, k_rstd, parts, s);
        start(qk_norm_grad_any<n.value, T>, blocks_for(s.tokens * s.groups(), threads / s.lanes), threads);
      }
    });
    if (!weights) return;
    launch(c, qk_norm_weight_sums, blocks_for(columns, threads / 32), threads, 0, parts, count, c.out[to::dq],
           c.out[to::dk], c.out_value(to::dq).dtype, acc(at::acc_q), acc(at::acc_k), s);
  });
}

}  // namespace

}  // namespace crest::cuda::qk

namespace crest::cuda {

Kernel qk_norm_grad_kernel() {
  return {"qk_norm_grad",
          "cuda.qk_norm_grad",
          reject_unless_float,
          qk::grad_workspace,
          nullptr,
          CREST_DEVICE_CODE(qk::launch_qk_norm_grad)};
}

}  // namespace crest::cuda
