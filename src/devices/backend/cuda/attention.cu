// cuda.attention.generic: attention and its gradient for every head_dim, dtype and scale; one block
// a row. Simple, not fast: for cases refused by the FlashAttention kernels (flash*.cu), such as
// heads above 512 (f32: 256), a scale below or equal to 0, GPUs with little shared memory.
#include "backend/cuda/flash.h"

#include "backend/cuda/device/flash_args.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 128;  // also the rows of the other side in work at a time

template <class T>
__device__ inline float dot(const float* a, const T* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = fmaf(a[i], widen(b[i]), sum);
  return sum;
}

template <class T>
__device__ inline const T* row_of(const HeadRows<const T>& g, int row) {
  return g.base + int64_t(row) * g.stride;
}

__device__ inline float keep_factor(const AttentionSizes& s, int batch, int head, int row, int column) {
  if (!s.dropout.scalars) return 1;
  return DropoutHead(s.dropout, batch, head, s.tokens).kept(row, column) ? s.dropout.keep_scale : 0.f;
}

// A query row: shared memory holds q, the sum and the weights of `threads` keys.
template <class T>
__global__ void __launch_bounds__(threads)
    generic_attention(const T* q_in, const T* kv, T* o, float* lse, AttentionSizes s, BlockOrder order) {
  wait_for_predecessors();
  CREST_DYNAMIC_SHARED(float, q);
  float *sum = q + s.head_dim, *weights = sum + s.head_dim;
  BlockPlace at = place_of_block(order, s.batch);
  const QueryChunk chunk = chunk_of(s, 1, at.tile);
  int row = at.tile, thread = int(threadIdx.x), visible = s.causal ? row + chunk.shift + 1 : s.tokens;
  int begin = s.has_first() ? first_key(s, at.batch, row, chunk) : 0;
  const T* from = row_of(query_rows(q_in, s, at.batch, at.head, chunk), row);
  auto keys = key_rows(kv, s, at.batch, at.head / s.group()), values = value_rows(kv, s, at.batch, at.head / s.group());
  for (int d = thread; d < s.head_dim; d += threads) q[d] = widen(from[d]), sum[d] = 0;
  float largest = -INFINITY, total = 0;
  for (int first = begin; first < visible; first += threads) {
    __syncthreads();  // q is there; the weights before are no longer read
    int column = first + thread, n = min(threads, visible - first);
    float score = column < visible ? s.scale * dot(q, row_of(keys, column), s.head_dim) : -INFINITY;
    float now = fmaxf(largest, block_max<threads>(score)), factor = expf(largest - now), p = expf(score - now);
    largest = now, total = total * factor + block_sum<threads>(p);
    weights[thread] = column < visible ? p * keep_factor(s, at.batch, at.head, row + chunk.shift, column) : 0.f;
    __syncthreads();
    for (int d = thread; d < s.head_dim; d += threads) {
      float x = sum[d] * factor;
      for (int j = 0; j < n; ++j) x = fmaf(weights[j], widen(row_of(values, first + j)[d]), x);
      sum[d] = x;
    }
  }
  auto out = output_rows(o, s, at.batch, at.head, chunk);
  for (int d = thread; d < s.head_dim; d += threads)
    out.base[int64_t(row) * out.stride + d] = narrow<T>(sum[d] / total);
  if (thread == 0) lse[first_statistic(s, at.batch, at.head, chunk) + row] = largest + logf(total);
}

template <class T>
struct GenericGradArgs {
  const T *d_o, *q, *kv, *o;
  const float* lse;
  T *dq, *dkv;
  AttentionSizes s;
  BlockOrder order;
};

// dQ of a query row, or dK and dV of a key row. Shared memory: the row of q and dO (of k and v),
// its sums, the weights.
template <class T, bool Keys>
__global__ void __launch_bounds__(threads) generic_attention_grad(GenericGradArgs<T> a) {
  wait_for_predecessors();
  const AttentionSizes& s = a.s;
  int dim = s.head_dim;
  CREST_DYNAMIC_SHARED(float, fixed1);
  float *fixed2 = fixed1 + dim, *sum1 = fixed2 + dim, *sum2 = sum1 + dim, *weights1 = sum2 + dim;
  float* weights2 = weights1 + threads;
  BlockPlace at = place_of_block(a.order, s.batch);
  QueryChunk chunk = chunk_number(s, 0);  // of the queries
  if (!Keys) chunk = chunk_of(s, 1, at.tile);
  int row = at.tile, thread = int(threadIdx.x), kv_head = Keys ? at.head : at.head / s.group();
  int first_head = Keys ? at.head * s.group() : at.head, heads = Keys ? s.group() : 1;
  auto keys = key_rows(a.kv, s, at.batch, kv_head), values = value_rows(a.kv, s, at.batch, kv_head);
  auto from1 = Keys ? keys : query_rows(a.q, s, at.batch, at.head, chunk);
  auto from2 = Keys ? values : output_rows(a.d_o, s, at.batch, at.head, chunk);
  for (int d = thread; d < dim; d += threads) {
    fixed1[d] = widen(row_of(from1, row)[d]), fixed2[d] = widen(row_of(from2, row)[d]);
    sum1[d] = sum2[d] = 0;
  }
  __syncthreads();
  float delta = 0;  // dO . O, of Keys per query below
  if (!Keys) delta = dot(fixed2, row_of(output_rows(a.o, s, at.batch, at.head, chunk), row), dim);
  for (int pass = 0; pass < heads * (Keys ? s.chunks : 1); ++pass) {
    const int head = first_head + pass % heads;
    if (Keys) chunk = chunk_number(s, pass / heads);
    int begin = Keys && s.causal ? max(row - chunk.shift, 0) : 0;
    int end = Keys ? s.queries : s.causal ? row + chunk.shift + 1 : s.tokens;
    if (!Keys && s.has_first()) begin = first_key(s, at.batch, row, chunk);
    if (Keys && s.window) end = min(end, row + s.window - chunk.shift);
    auto streamed1 = Keys ? query_rows(a.q, s, at.batch, head, chunk) : keys;
    auto streamed2 = Keys ? output_rows(a.d_o, s, at.batch, head, chunk) : values;
    auto outputs = output_rows(a.o, s, at.batch, head, chunk);
    const float* lse = a.lse + first_statistic(s, at.batch, head, chunk);
    for (int first = begin; first < end; first += threads) {
      int other = first + thread, n = min(threads, end - first), query = Keys ? other : row, key = Keys ? row : other;
      if (other < end) {
        float p = expf(s.scale * dot(fixed1, row_of(streamed1, other), dim) - lse[query]);
        float dp = dot(fixed2, row_of(streamed2, other), dim),
              keep = keep_factor(s, at.batch, head, query + chunk.shift, key);
        if (Keys) {
          delta = 0;
          for (int d = 0; d < dim; ++d)
            delta = fmaf(widen(row_of(streamed2, other)[d]), widen(row_of(outputs, other)[d]), delta);
        }
        if (Keys && s.has_first() && first_key(s, at.batch, query, chunk) > key) p = 0;
        weights1[thread] = p * (dp * keep - delta) * s.scale, weights2[thread] = p * keep;
      }
      __syncthreads();
      for (int d = thread; d < dim; d += threads)
        for (int j = 0; j < n; ++j) {
          sum1[d] = fmaf(weights1[j], widen(row_of(streamed1, first + j)[d]), sum1[d]);
          if (Keys) sum2[d] = fmaf(weights2[j], widen(row_of(streamed2, first + j)[d]), sum2[d]);
        }
      __syncthreads();  // the weights are no longer read
    }
  }
  auto to1 = Keys ? key_rows(a.dkv, s, at.batch, kv_head) : query_rows(a.dq, s, at.batch, at.head, chunk);
  auto to2 = value_rows(a.dkv, s, at.batch, kv_head);
  for (int d = thread; d < dim; d += threads) {
    to1.base[int64_t(row) * to1.stride + d] = narrow<T>(sum1[d]);
    if (Keys) to2.base[int64_t(row) * to2.stride + d] = narrow<T>(sum2[d]);
  }
}

size_t forward_bytes(int head_dim) { return size_t(2 * head_dim + threads) * 4; }
size_t grad_bytes(int head_dim) { return size_t(4 * head_dim + 2 * threads) * 4; }

void launch_forward(const KernelCall& c) {
  const AttentionOperands at = attention_operands(c);
  AttentionSizes s = attention_sizes(c, at);
  BlockOrder order = {s.rows(), s.heads, s.causal, false};
  with_type(c.in_value(at.q).dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, generic_attention<T>, blocks_of(order, s), threads, forward_bytes(s.head_dim), c.input<T>(at.q),
           c.input<T>(at.kv), c.output<T>(out::attention::o), c.output<float>(out::attention::lse), s, order);
  });
}

void launch_grad(const KernelCall& c) {
  const GradOperands at = grad_operands(c);
  AttentionSizes s = attention_sizes(c, at);
  with_type(c.in_value(at.q).dtype, [&](auto t) {
    using T = decltype(t);
    GenericGradArgs<T> args = {c.input<T>(at.d_o),
                               c.input<T>(at.q),
                               c.input<T>(at.kv),
                               c.input<T>(at.o),
                               c.input<float>(at.lse),
                               c.output<T>(at.dq),
                               c.output<T>(at.dkv),
                               s,
                               {s.rows(), s.heads, s.causal, false}};
    launch(c, generic_attention_grad<T, false>, blocks_of(args.order, s), threads, grad_bytes(s.head_dim), args);
    args.order = {s.tokens, s.kv_heads, false, false};
    launch(c, generic_attention_grad<T, true>, blocks_of(args.order, s), threads, grad_bytes(s.head_dim), args);
  });
}

std::string reject_with(const KernelQuery& q, size_t qkv, size_t (*bytes)(int)) {
  if (std::string why = reject_attention(q, qkv); !why.empty()) return why;
  return reject_shared_memory(q, bytes(head_dim_of(q.instr, q.in(qkv))));
}
std::string reject(const KernelQuery& q) { return reject_with(q, attention_operands(q.instr).q, forward_bytes); }
std::string reject_grad(const KernelQuery& q) { return reject_with(q, grad_operands(q.instr).q, grad_bytes); }

}  // namespace

Kernel attention_generic_kernel() {
  return {"attention", "cuda.attention.generic", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel attention_generic_grad_kernel() {
  return {"attention_grad", "cuda.attention.generic", reject_grad, nullptr, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

Kernel rows_generic_kernel() {
  return {"attention_rows", "cuda.attention.generic", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel rows_generic_grad_kernel() {
  return {"attention_rows_grad",         "cuda.attention.generic", reject_grad, nullptr, nullptr,
          CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
