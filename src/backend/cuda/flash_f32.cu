// cuda.flash.fp32: FlashAttention-2 (Dao 2023) in float throughout, forward and backward. 256 threads as 16 x 16:
// thread (y, x) has rows y + 16 i of the block's tile; of a product with 16 C columns it has C, x + 16 j of the scores.
// Tiles are in shared memory, their rows 16 bytes apart in banks. The backward pass is split like that of
// flash_grad.cu.
#include "backend/cuda/flash.h"

#include "backend/cuda/device/flash_args.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <int D_>
struct FloatTile {
  static constexpr int D = D_, rows = D <= 64 ? 64 : 32, columns = 32, threads = 256;
  static constexpr int per_thread = rows / 16, pitch = D + 4, weight_pitch = columns + 4;
  // Of shared memory: fixed and streamed tiles, weights of streamed rows.
  static constexpr int fixed = rows * pitch, streamed = columns * pitch, weights = rows * weight_pitch;
  static constexpr int forward_bytes = 4 * (fixed + 2 * streamed + weights);
  static constexpr int grad_bytes = 4 * (2 * fixed + 2 * streamed + 2 * weights);
};

// Copies rows first .. first + rows - 1 of a head into a tile; zeros beyond its ends.
template <class Tile>
__device__ inline void fill_tile(float* tile, int rows, const HeadRows<const float>& g, int first) {
  constexpr int vectors = Tile::D / 4;
  for (int item = int(threadIdx.x); item < rows * vectors; item += Tile::threads) {
    int row = item / vectors, column = item % vectors * 4;
    Vec<float, 4> v = {};
    if (first + row < g.count) {
      const float* from = g.base + int64_t(first + row) * g.stride + column;
      if (g.vectors && column < g.width) {
        v = load_vec<4>(from);
      } else {
        for (int i = 0; i < 4; ++i)
          if (column + i < g.width) v.x[i] = from[i];
      }
    }
    store_vec(tile + row * Tile::pitch + column, v);
  }
}

// Products of rows y + 16 i of one tile with rows x + 16 j of another.
template <class Tile>
__device__ inline void dot_rows(float (&c)[Tile::per_thread][2], const float* a, const float* b, int y, int x) {
#pragma unroll
  for (int i = 0; i < Tile::per_thread; ++i) c[i][0] = c[i][1] = 0;
#pragma unroll 4
  for (int d = 0; d < Tile::D; d += 4) {
    Vec<float, 4> right[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) right[j] = load_vec<4>(b + (x + 16 * j) * Tile::pitch + d);
#pragma unroll
    for (int i = 0; i < Tile::per_thread; ++i) {
      Vec<float, 4> left = load_vec<4>(a + (y + 16 * i) * Tile::pitch + d);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[i][j] = fmaf(left.x[e], right[j].x[e], c[i][j]);
    }
  }
}

// Column of element c of the D / 16 that a thread has of a row: neighbours in vectors of up to 4.
template <class Tile>
__device__ inline int column_of(int x, int c) {
  constexpr int n = Tile::D / 16 < 4 ? Tile::D / 16 : 4;
  return c / n * 16 * n + x * n + c % n;
}

// c[i] += weights of row y + 16 i times the streamed rows.
template <class Tile>
__device__ inline void add_weighted(float (&c)[Tile::per_thread][Tile::D / 16], const float* weights, const float* rows,
                                    int y, int x) {
  constexpr int n = Tile::D / 16 < 4 ? Tile::D / 16 : 4;
#pragma unroll 2
  for (int k = 0; k < Tile::columns; k += 4) {
    Vec<float, 4> w[Tile::per_thread];
#pragma unroll
    for (int i = 0; i < Tile::per_thread; ++i) w[i] = load_vec<4>(weights + (y + 16 * i) * Tile::weight_pitch + k);
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
      for (int v = 0; v < Tile::D / 16; v += n) {
        auto row = load_vec<n>(rows + (k + u) * Tile::pitch + column_of<Tile>(x, v));
#pragma unroll
        for (int i = 0; i < Tile::per_thread; ++i)
#pragma unroll
          for (int e = 0; e < n; ++e) c[i][v + e] = fmaf(w[i].x[u], row.x[e], c[i][v + e]);
      }
  }
}

template <class Tile>
__device__ inline void store_row(const HeadRows<float>& g, int row, const float (&c)[Tile::D / 16], float factor,
                                 int x) {
  if (row >= g.count) return;
  float* to = g.base + int64_t(row) * g.stride;
#pragma unroll
  for (int i = 0; i < Tile::D / 16; ++i)
    if (int column = column_of<Tile>(x, i); column < g.width) to[column] = c[i] * factor;
}

// Over the 16 threads of a row.
__device__ inline float row_sum(float x) {
  for (int d = 8; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}
__device__ inline float row_max(float x) {
  for (int d = 8; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    flash_f32_forward(const float* qkv, float* o, float* lse, AttentionSizes s, BlockOrder order) {
  wait_for_predecessors();
  constexpr int R = Tile::per_thread, N = Tile::columns;
  CREST_DYNAMIC_SHARED(float, shared);
  float *queries = shared, *keys = queries + Tile::fixed, *values = keys + Tile::streamed;
  float* weights = values + Tile::streamed;
  BlockPlace at = place_of_block(order, s.batch);
  int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16), first = at.tile * Tile::rows;
  int end = s.causal ? min(s.tokens, first + Tile::rows) : s.tokens;
  fill_tile<Tile>(queries, Tile::rows, query_rows(qkv, s, at.batch, at.head), first);

  float sums[R][Tile::D / 16] = {}, largest[R], total[R] = {};
  int first_keys[R];
#pragma unroll
  for (int i = 0; i < R; ++i)
    largest[i] = -INFINITY, first_keys[i] = s.positions ? first_key(s, at.batch, first + y + 16 * i) : 0;
  int begin = s.positions ? first_key(s, at.batch, first) / N * N : 0;
  for (int column = begin; column < end; column += N) {
    __syncthreads();  // the tiles before are no longer read
    fill_tile<Tile>(keys, N, key_rows(qkv, s, at.batch, at.head / s.group()), column);
    fill_tile<Tile>(values, N, value_rows(qkv, s, at.batch, at.head / s.group()), column);
    __syncthreads();
    float p[R][2];
    dot_rows<Tile>(p, queries, keys, y, x);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      int row = first + y + 16 * i;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int key = column + x + 16 * j;
        bool seen = key < s.tokens && !(s.causal && key > row) && key >= first_keys[i];
        p[i][j] = seen ? p[i][j] * s.scale : -INFINITY;
      }
      float now = fmaxf(largest[i], row_max(fmaxf(p[i][0], p[i][1])));
      float shift = now == -INFINITY ? 0.f : now;  // a row may see nothing of a tile, or yet
      float factor = expf(largest[i] - shift);
      largest[i] = now, total[i] *= factor;
#pragma unroll
      for (int c = 0; c < Tile::D / 16; ++c) sums[i][c] *= factor;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float e = expf(p[i][j] - shift);
        total[i] += e;
        if (s.dropout.scalars && !DropoutHead(s.dropout, at.batch, at.head, s.tokens).kept(row, column + x + 16 * j))
          e = 0;
        weights[(y + 16 * i) * Tile::weight_pitch + x + 16 * j] = e;
      }
    }
    __syncwarp();  // the 16 threads that write a row of weights are those that read it
    add_weighted<Tile>(sums, weights, values, y, x);
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    int row = first + y + 16 * i;
    float sum = row_sum(total[i]);
    store_row<Tile>(output_rows(o, s, at.batch, at.head), row, sums[i],
                    (s.dropout.scalars ? s.dropout.keep_scale : 1.f) / sum, x);
    if (x == 0 && row < s.tokens)
      lse[(int64_t(at.batch) * s.heads + at.head) * s.tokens + row] = largest[i] + logf(sum);
  }
}

struct FloatGradArgs {
  const float *d_o, *qkv, *o, *lse;
  float* dqkv;
  float2* statistics;  // [batch, heads, tokens]: lse, dO . O
  AttentionSizes s;
  BlockOrder order;
};

// Queries: the tile's rows are queries, their gradient is summed over keys. Keys: the other way round.
template <class Tile, bool Keys>
__global__ void __launch_bounds__(Tile::threads) flash_f32_grad(FloatGradArgs a) {
  wait_for_predecessors();
  constexpr int R = Tile::per_thread, N = Tile::columns;
  const AttentionSizes& s = a.s;
  CREST_DYNAMIC_SHARED(float, shared);
  float *fixed1 = shared, *fixed2 = fixed1 + Tile::fixed, *streamed1 = fixed2 + Tile::fixed;
  float *streamed2 = streamed1 + Tile::streamed, *weights1 = streamed2 + Tile::streamed;
  float* weights2 = weights1 + Tile::weights;  // of Keys
  BlockPlace at = place_of_block(a.order, s.batch);
  int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16), first = at.tile * Tile::rows;
  int first_head = Keys ? at.head * s.group() : at.head, heads = Keys ? s.group() : 1, kv_head = first_head / s.group();
  fill_tile<Tile>(fixed1, Tile::rows,
                  Keys ? key_rows(a.qkv, s, at.batch, kv_head) : query_rows(a.qkv, s, at.batch, at.head), first);
  fill_tile<Tile>(fixed2, Tile::rows,
                  Keys ? value_rows(a.qkv, s, at.batch, kv_head) : output_rows(a.d_o, s, at.batch, at.head), first);
  __syncthreads();

  float2 of_row[R] = {};
  if constexpr (!Keys) {
    auto o = output_rows(a.o, s, at.batch, at.head);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      int row = first + y + 16 * i;
      float sum = 0;
      if (row < s.tokens)
        for (int d = x; d < s.head_dim; d += 16)
          sum = fmaf(o.base[int64_t(row) * o.stride + d], fixed2[(y + 16 * i) * Tile::pitch + d], sum);
      sum = row_sum(sum);
      if (row < s.tokens) {
        int64_t place = (int64_t(at.batch) * s.heads + at.head) * s.tokens + row;
        of_row[i] = make_float2(a.lse[place], sum);
        if (x == 0) a.statistics[place] = of_row[i];
      }
    }
  }

  float sum1[R][Tile::D / 16] = {}, sum2[R][Tile::D / 16] = {};  // dQ; or dK and dV
  int begin = Keys && s.causal ? first / N * N : 0;
  int end = !Keys && s.causal ? min(s.tokens, first + Tile::rows) : s.tokens;
  if (!Keys && s.positions) begin = first_key(s, at.batch, first) / N * N;
  // Queries of documents that begin behind the tile's keys.
  if (Keys && s.positions)
    while (end - N > begin && first_key(s, at.batch, (end - 1) / N * N) >= first + Tile::rows) end = (end - 1) / N * N;
  for (int head = first_head; head < first_head + heads; ++head)
    for (int column = begin; column < end; column += N) {
      __syncthreads();  // the tiles before are no longer read
      fill_tile<Tile>(streamed1, N, Keys ? query_rows(a.qkv, s, at.batch, head) : key_rows(a.qkv, s, at.batch, kv_head),
                      column);
      fill_tile<Tile>(streamed2, N,
                      Keys ? output_rows(a.d_o, s, at.batch, head) : value_rows(a.qkv, s, at.batch, kv_head), column);
      __syncthreads();
      float p[R][2], dp[R][2];
      dot_rows<Tile>(p, fixed1, streamed1, y, x);
      dot_rows<Tile>(dp, fixed2, streamed2, y, x);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int other = column + x + 16 * j;
        float2 of_column = {};
        if (Keys && other < s.tokens) of_column = a.statistics[(int64_t(at.batch) * s.heads + head) * s.tokens + other];
#pragma unroll
        for (int i = 0; i < R; ++i) {
          int row = first + y + 16 * i, key = Keys ? row : other, query = Keys ? other : row;
          float2 of_query = Keys ? of_column : of_row[i];
          bool seen = max(key, query) < s.tokens && !(s.causal && key > query);
          if (s.positions) seen = seen && key >= first_key(s, at.batch, query);
          float probability = seen ? expf(p[i][j] * s.scale - of_query.x) : 0.f, keep = 1;
          if (s.dropout.scalars)
            keep = DropoutHead(s.dropout, at.batch, head, s.tokens).kept(query, key) ? s.dropout.keep_scale : 0.f;
          int place = (y + 16 * i) * Tile::weight_pitch + x + 16 * j;
          weights1[place] = probability * (dp[i][j] * keep - of_query.y) * s.scale;
          if (Keys) weights2[place] = probability * keep;
        }
      }
      __syncwarp();  // the 16 threads that write a row of weights are those that read it
      add_weighted<Tile>(sum1, weights1, streamed1, y, x);
      if constexpr (Keys) add_weighted<Tile>(sum2, weights2, streamed2, y, x);
    }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    int row = first + y + 16 * i;
    if constexpr (Keys) {
      store_row<Tile>(key_rows(a.dqkv, s, at.batch, kv_head), row, sum1[i], 1, x);
      store_row<Tile>(value_rows(a.dqkv, s, at.batch, kv_head), row, sum2[i], 1, x);
    } else {
      store_row<Tile>(query_rows(a.dqkv, s, at.batch, at.head), row, sum1[i], 1, x);
    }
  }
}

// Tile widths are 32, 64 and 128.
template <class Body>
auto with_float_tile(int head_dim, Body&& body) {
  return with_head_dim(head_dim, [&](auto d) { return body(FloatTile < d() == 96 ? 128 : d() > ()); });
}

void launch_forward(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, in::attention::qkv, in::attention::scalars);
  with_float_tile(s.head_dim, [&](auto tile) {
    using Tile = decltype(tile);
    BlockOrder order = block_order(c, s, Tile::rows, s.heads, s.causal);
    launch(c, flash_f32_forward<Tile>, blocks_of(order, s), Tile::threads, size_t(Tile::forward_bytes),
           c.input<float>(in::attention::qkv), c.output<float>(out::attention::o), c.output<float>(out::attention::lse),
           s, order);
  });
}

void launch_grad(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, in::attention_grad::qkv, in::attention_grad::scalars);
  FloatGradArgs args = {c.input<float>(in::attention_grad::d_o),
                        c.input<float>(in::attention_grad::qkv),
                        c.input<float>(in::attention_grad::o),
                        c.input<float>(in::attention_grad::lse),
                        c.output<float>(out::attention_grad::dqkv),
                        static_cast<float2*>(c.workspace),
                        s,
                        {}};
  with_float_tile(s.head_dim, [&](auto tile) {
    using Tile = decltype(tile);
    args.order = block_order(c, s, Tile::rows, s.heads, s.causal);
    launch(c, flash_f32_grad<Tile, false>, blocks_of(args.order, s), Tile::threads, size_t(Tile::grad_bytes), args);
    args.order = block_order(c, s, Tile::rows, s.kv_heads, false);
    launch(c, flash_f32_grad<Tile, true>, blocks_of(args.order, s), Tile::threads, size_t(Tile::grad_bytes), args);
  });
}

std::string reject(const KernelQuery& q) {
  return reject_flash(q, in::attention::qkv, false, [](int head_dim) {
    return with_float_tile(head_dim, [](auto tile) { return size_t(tile.forward_bytes); });
  });
}
std::string reject_grad(const KernelQuery& q) {
  return reject_flash(q, in::attention_grad::qkv, false, [](int head_dim) {
    return with_float_tile(head_dim, [](auto tile) { return size_t(tile.grad_bytes); });
  });
}

size_t workspace(const KernelQuery& q) { return size_t(q.in(in::attention_grad::lse).numel()) * sizeof(float2); }

}  // namespace

Kernel flash_fp32_kernel() {
  return {"attention", "cuda.flash.fp32", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel flash_fp32_grad_kernel() {
  return {"attention_grad", "cuda.flash.fp32", reject_grad, workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
