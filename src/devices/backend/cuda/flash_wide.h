// FlashAttention-2 (Dao 2023) for heads with sums too large for a warp's registers, forward and
// backward, on any format of numbers (device/flash_numbers.h). `parts` warps share 16 rows of the
// block's tile. Of the scores with a streamed tile each computes its share of the columns, over the
// whole width of the head; then they exchange the weights through shared memory, and each sums its
// share of the head's columns. The backward pass is split into two kernels as in flash_grad.h.
#pragma once
#include "backend/cuda/device/flash_numbers.h"
#include "backend/cuda/device/flash_softmax.h"
#include "backend/cuda/flash.h"
#include "ops/index.h"

namespace crest::cuda {

// columns: streamed rows at a time. stages: streamed pairs of tiles in shared memory (gradients).
template <class Numbers_, int D_, int Parts_, int Columns_, int Stages_, int MinBlocks_>
struct WideTile {
  using Numbers = Numbers_;
  static constexpr int D = D_, parts = Parts_, columns = Columns_, stages = Stages_, min_blocks = MinBlocks_;
  static constexpr int warps = 8, threads = 32 * warps, groups = warps / parts, rows = 16 * groups;
  // Of a warp: columns of scores and of sums.
  static constexpr int scores = columns / parts, share = D / parts;
  static constexpr int row_bytes = Numbers::template row_bytes<D>, fixed_bytes = rows * row_bytes;
  static constexpr int streamed_bytes = columns * row_bytes, statistics_bytes = 8 * columns;
  static constexpr int stage_bytes = 2 * streamed_bytes + statistics_bytes;
  static constexpr int weights_bytes = groups * columns / 8 * 32 * 4 * Numbers::words, shares_bytes = 4 * parts * rows;
  static constexpr int forward_bytes = fixed_bytes + 2 * streamed_bytes + weights_bytes + shares_bytes;
  static constexpr int grad_bytes = 2 * fixed_bytes + stages * stage_bytes + 2 * weights_bytes;
  static_assert(scores % 8 == 0 && scores <= 64 && columns % 16 == 0 && share % 32 == 0);
};

// The weights of a group's rows: C fragments of all its warps, by column.
template <class Tile>
struct SharedWeights {
  using Numbers = typename Tile::Numbers;
  static constexpr int all = Tile::columns / 8, own = Tile::scores / 8;
  uint32_t* words;  // of the group and lane

  __device__ SharedWeights(unsigned char* shared, int group)
      : words(reinterpret_cast<uint32_t*>(shared) + (group * all * 32 + int(threadIdx.x % 32)) * Numbers::words) {}
  __device__ void put(const float (&p)[1][own][4], int part) const {
#pragma unroll
    for (int n = 0; n < own; ++n) {
      Vec<uint32_t, Numbers::words> v;
      Numbers::pack(v.x, p[0][n]);
      store_vec(words + (part * own + n) * 32 * Numbers::words, v);
    }
  }
  __device__ void get(uint32_t (&p)[1][all][Numbers::words]) const {
#pragma unroll
    for (int n = 0; n < all; ++n) {
      auto v = load_vec<Numbers::words>(words + n * 32 * Numbers::words);
#pragma unroll
      for (int i = 0; i < Numbers::words; ++i) p[0][n][i] = v.x[i];
    }
  }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
    flash_wide_forward(const typename Tile::Numbers::Element* qkv, typename Tile::Numbers::Element* o_out, float* lse,
                       AttentionSizes s, BlockOrder order) {
  wait_for_predecessors();
  using Numbers = typename Tile::Numbers;
  constexpr int D = Tile::D, N = Tile::columns, NT = Tile::scores / 8, Threads = Tile::threads;
  CREST_DYNAMIC_SHARED(unsigned char, q_tile);
  unsigned char *k_tile = q_tile + Tile::fixed_bytes, *v_tile = k_tile + Tile::streamed_bytes;
  unsigned char* weights_tile = v_tile + Tile::streamed_bytes;
  float* shares = reinterpret_cast<float*>(weights_tile + Tile::weights_bytes);  // [parts][rows]: maxima, then sums
  BlockPlace at = place_of_block(order, s.batch);
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), g = lane / 4, t = lane % 4;
  int group = warp / Tile::parts, part = warp % Tile::parts, kv_head = at.head / s.group();
  int block_row = at.tile * Tile::rows, tile_row = 16 * group, warp_row = block_row + tile_row;
  auto keys = key_rows(qkv, s, at.batch, kv_head), values = value_rows(qkv, s, at.batch, kv_head);
  int visible = s.causal ? min(s.tokens, block_row + Tile::rows) : s.tokens, tiles = (visible + N - 1) / N;
  // Tiles before the first key of the block's rows are passed over.
  int first_tile = s.has_first() ? first_key(s, at.batch, block_row) / N : 0;
  int group_first = s.has_first() ? first_key(s, at.batch, warp_row) : 0;
  SharedWeights<Tile> weights(weights_tile, group);

  Numbers::template load<D, Tile::rows, Threads>(q_tile, query_rows(qkv, s, at.batch, at.head), block_row);
  Numbers::template load<D, N, Threads>(k_tile, keys, first_tile * N);
  copy_commit();
  copy_wait<0>();
  Numbers::template prepare<D, Tile::rows, Threads>(q_tile);

  float o[1][Tile::share / 8][4] = {};
  OnlineSoftmax<1> softmax(s.scale);
  for (int tile = first_tile; tile < tiles; ++tile) {
    int column = tile * N, own_column = column + part * Tile::scores;
    Numbers::template prepare<D, N, Threads>(k_tile);
    __syncthreads();  // the keys are there, the values before are no longer read
    Numbers::template load<D, N, Threads>(v_tile, values, column);
    copy_commit();
    bool seen = warp_row < s.tokens && (!s.causal || column < warp_row + 16) && column + N > group_first;
    float p[1][NT][4] = {}, top[1][2];
    if (seen) {
      Numbers::template multiply_rows<D>(p, q_tile + tile_row * Tile::row_bytes,
                                         k_tile + part * Tile::scores * Tile::row_bytes);
      if (s.has_first())
        hide_keys<true>(p, s, at.batch, warp_row, own_column);
      else
        hide_keys<false>(p, s, at.batch, warp_row, own_column);
      OnlineSoftmax<1>::row_maxima(p, top);
      if (t == 0)
#pragma unroll
        for (int h = 0; h < 2; ++h) shares[part * Tile::rows + tile_row + 8 * h + g] = top[0][h];
    }
    copy_wait<0>();
    Numbers::template prepare<D, N, Threads>(v_tile);
    __syncthreads();  // values and maxima are there, the keys are no longer read
    if (tile + 1 < tiles) Numbers::template load<D, N, Threads>(k_tile, keys, column + N);
    copy_commit();
    if (seen) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        top[0][h] = -INFINITY;
#pragma unroll
        for (int i = 0; i < Tile::parts; ++i)
          top[0][h] = fmaxf(top[0][h], shares[i * Tile::rows + tile_row + 8 * h + g]);
      }
      softmax.template follow<true>(top, o);
      softmax.template weigh<true>(p);
      if (s.dropout.scalars) {
        uint32_t kept = kept_by_queries<NT>(DropoutHead(s.dropout, at.batch, at.head, s.tokens), warp_row, own_column);
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) p[0][n][e] = kept >> (4 * n + e) & 1 ? p[0][n][e] : 0.f;
      }
      weights.put(p, part);
    }
    __syncthreads();  // the weights are there
    if (seen) {
      uint32_t all[1][N / 8][Numbers::words];
      weights.get(all);
      Numbers::template accumulate<D>(o, all, v_tile, part * Tile::share);
    }
    copy_wait<0>();
  }

  __syncthreads();  // the maxima are no longer read
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = softmax.sum[0][h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (t == 0) shares[part * Tile::rows + tile_row + 8 * h + g] = sum;
  }
  __syncthreads();
  float factor[1][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Tile::parts; ++i) sum += shares[i * Tile::rows + tile_row + 8 * h + g];
    factor[0][h] = (s.dropout.scalars ? s.dropout.keep_scale : 1.f) / sum;
    int row = warp_row + 8 * h + g;
    if (part == 0 && t == 0 && row < s.tokens)
      lse[(int64_t(at.batch) * s.heads + at.head) * s.tokens + row] = fmaf(softmax.largest[0][h], s.scale, logf(sum));
  }
  Numbers::store(output_rows(o_out, s, at.batch, at.head), warp_row, o, factor, part * Tile::share);
}

template <class T>
struct WideGradArgs {
  const T *d_o, *qkv, *o;
  const float* lse;
  T* dqkv;
  float2* statistics;  // [batch, heads, tokens]: lse, dO . O
  AttentionSizes s;
  BlockOrder order;
};

template <class Tile, bool Keys>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
    flash_wide_grad(WideGradArgs<typename Tile::Numbers::Element> a) {
  wait_for_predecessors();
  using Numbers = typename Tile::Numbers;
  constexpr int D = Tile::D, N = Tile::columns, NT = Tile::scores / 8, Threads = Tile::threads;
  const AttentionSizes& s = a.s;
  CREST_DYNAMIC_SHARED(unsigned char, fixed1);
  unsigned char *fixed2 = fixed1 + Tile::fixed_bytes, *stages = fixed2 + Tile::fixed_bytes;
  unsigned char* weights_tiles = stages + Tile::stages * Tile::stage_bytes;
  BlockPlace at = place_of_block(a.order, s.batch);
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), g = lane / 4, t = lane % 4;
  int group = warp / Tile::parts, part = warp % Tile::parts;
  int block_row = at.tile * Tile::rows, tile_row = 16 * group, warp_row = block_row + tile_row;
  SharedWeights<Tile> weights1(weights_tiles, group), weights2(weights_tiles + Tile::weights_bytes, group);

  // Streamed tiles: of keys, up to the last one seen by a query of the block; of queries, from the
  // first one with a view of a key of the block, for one head of the group after the other.
  int first_tile = Keys && s.causal ? block_row / N : 0;
  int last = !Keys && s.causal ? min(s.tokens, block_row + Tile::rows) : s.tokens;
  int tiles = (last + N - 1) / N;
  if (Keys && s.has_first()) {  // queries with visible keys only behind the block's
    while (tiles - 1 > first_tile && first_key(s, at.batch, (tiles - 1) * N) >= block_row + Tile::rows) --tiles;
  } else if (s.has_first()) {
    first_tile = first_key(s, at.batch, block_row) / N;
  }
  int rounds = (tiles - first_tile) * (Keys ? s.group() : 1);
  int tile = first_tile, head = Keys ? at.head * s.group() : at.head / s.group();  // of the streamed rows
  auto load_stage = [&](int round, int head, int row) {
    unsigned char* stage = stages + round % Tile::stages * Tile::stage_bytes;
    auto rows1 = Keys ? query_rows(a.qkv, s, at.batch, head) : key_rows(a.qkv, s, at.batch, head);
    auto rows2 = Keys ? output_rows(a.d_o, s, at.batch, head) : value_rows(a.qkv, s, at.batch, head);
    Numbers::template load<D, N, Threads>(stage, rows1, row);
    Numbers::template load<D, N, Threads>(stage + Tile::streamed_bytes, rows2, row);
    if constexpr (Keys) {
      // Zeros for rows beyond the end: their P is 1, their dO and dS are 0.
      const float2* from = a.statistics + (int64_t(at.batch) * s.heads + head) * s.tokens;
      SharedAddress to = shared_address(stage + 2 * Tile::streamed_bytes);
      for (int i = int(threadIdx.x); i < N; i += Threads) {
        bool valid = row + i < s.tokens;
        copy_async<8>(to + unsigned(8 * i), from + (valid ? row + i : 0), valid);
      }
    }
    copy_commit();
  };
  // This thread's copies.
  auto finish_stage = [&](int round) {
    unsigned char* stage = stages + round % Tile::stages * Tile::stage_bytes;
    copy_wait<0>();
    Numbers::template prepare<D, N, Threads>(stage);
    Numbers::template prepare<D, N, Threads>(stage + Tile::streamed_bytes);
  };
  auto rows1 = Keys ? key_rows(a.qkv, s, at.batch, at.head) : query_rows(a.qkv, s, at.batch, at.head);
  auto rows2 = Keys ? value_rows(a.qkv, s, at.batch, at.head) : output_rows(a.d_o, s, at.batch, at.head);
  Numbers::template load<D, Tile::rows, Threads>(fixed1, rows1, block_row);
  Numbers::template load<D, Tile::rows, Threads>(fixed2, rows2, block_row);
  load_stage(0, head, tile * N);
  float row_lse[2] = {}, row_delta[2] = {};
  if constexpr (!Keys) {
    auto o = output_rows(a.o, s, at.batch, at.head);
    int64_t place = (int64_t(at.batch) * s.heads + at.head) * s.tokens;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int row = warp_row + 8 * h + g;
      float sum = Numbers::dot(o, rows2, row);
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (row < s.tokens) {
        row_lse[h] = a.lse[place + row], row_delta[h] = sum;
        if (part == 0 && t == 0) a.statistics[place + row] = make_float2(row_lse[h], sum);
      }
    }
  }
  finish_stage(0);
  Numbers::template prepare<D, Tile::rows, Threads>(fixed1);
  Numbers::template prepare<D, Tile::rows, Threads>(fixed2);
  __syncthreads();

  float sum1[1][Tile::share / 8][4] = {}, sum2[1][Keys ? Tile::share / 8 : 1][4] = {};  // dQ; or dK and dV
  for (int round = 0; round < rounds; ++round) {
    // With two stages the other one was read in the round before; the barrier at its end made it
    // free.
    int next_tile = tile + 1 < tiles ? tile + 1 : first_tile, next_head = head + (Keys && tile + 1 == tiles);
    bool more = round + 1 < rounds;
    if (Tile::stages == 2 && more) load_stage(round + 1, next_head, next_tile * N);
    const unsigned char* streamed1 = stages + round % Tile::stages * Tile::stage_bytes;
    const unsigned char* streamed2 = streamed1 + Tile::streamed_bytes;
    int column = tile * N, own_column = column + part * Tile::scores, own_bytes = part * Tile::scores * Tile::row_bytes;
    // Causal: a query sees the keys up to its own position.
    bool seen = warp_row < s.tokens && (!s.causal || (Keys ? column + N > warp_row : column < warp_row + 16));
    if (s.has_first())
      seen = seen &&
             (Keys ? first_key(s, at.batch, column) < warp_row + 16 : column + N > first_key(s, at.batch, warp_row));
    if (seen) {
      float p[1][NT][4], ds[1][NT][4];
      Numbers::template multiply_rows<D>(p, fixed1 + tile_row * Tile::row_bytes, streamed1 + own_bytes);
      if (s.has_first())
        hide_pairs<Keys, true>(p, s, at.batch, warp_row, own_column);
      else
        hide_pairs<Keys, false>(p, s, at.batch, warp_row, own_column);
      Numbers::template multiply_rows<D>(ds, fixed2 + tile_row * Tile::row_bytes, streamed2 + own_bytes);
      uint32_t kept = 0;
      if (s.dropout.scalars) {
        DropoutHead rule(s.dropout, at.batch, Keys ? head : at.head, s.tokens);
        kept = Keys ? kept_by_keys<NT>(rule, warp_row, own_column) : kept_by_queries<NT>(rule, warp_row, own_column);
      }
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        Vec<float, 4> of_columns = {};  // {lse, dO . O} of this lane's two
        if constexpr (Keys)
          of_columns = load_vec<4>(reinterpret_cast<const float*>(streamed2 + Tile::streamed_bytes) +
                                   2 * part * Tile::scores + 16 * n + 4 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float lse = Keys ? of_columns.x[i % 2 * 2] : row_lse[i / 2];
          float delta = Keys ? of_columns.x[i % 2 * 2 + 1] : row_delta[i / 2];
          float weight = exp2_fast(fmaf(p[0][n][i], s.scale, -lse) * log2_e), keep = 1;
          if (s.dropout.scalars) keep = kept >> (4 * n + i) & 1 ? s.dropout.keep_scale : 0.f;
          ds[0][n][i] = weight * (ds[0][n][i] * keep - delta), p[0][n][i] = weight * keep;
        }
      }
      weights1.put(ds, part);
      if constexpr (Keys) weights2.put(p, part);
    }
    __syncthreads();  // the weights are there
    if (seen) {
      uint32_t all[1][N / 8][Numbers::words];
      weights1.get(all);
      Numbers::template accumulate<D>(sum1, all, streamed1, part * Tile::share);
      if constexpr (Keys) {
        weights2.get(all);
        Numbers::template accumulate<D>(sum2, all, streamed2, part * Tile::share);
      }
    }
    if constexpr (Tile::stages == 1) {
      __syncthreads();  // the stage is no longer read
      if (more) load_stage(round + 1, next_head, next_tile * N);
    }
    if (more) finish_stage(round + 1);
    tile = next_tile, head = next_head;
    __syncthreads();
  }

  float scale[1][2] = {{s.scale, s.scale}}, one[1][2] = {{1, 1}};
  if constexpr (Keys) {
    Numbers::store(key_rows(a.dqkv, s, at.batch, at.head), warp_row, sum1, scale, part * Tile::share);
    Numbers::store(value_rows(a.dqkv, s, at.batch, at.head), warp_row, sum2, one, part * Tile::share);
  } else {
    Numbers::store(query_rows(a.dqkv, s, at.batch, at.head), warp_row, sum1, scale, part * Tile::share);
  }
}

template <class Tile>
void start_wide_forward(const KernelCall& c, const AttentionSizes& s) {
  using T = typename Tile::Numbers::Element;
  BlockOrder order = block_order(c, s, Tile::rows, s.heads, s.causal);
  launch(c, flash_wide_forward<Tile>, blocks_of(order, s), Tile::threads, size_t(Tile::forward_bytes),
         c.input<T>(in::attention::qkv), c.output<T>(out::attention::o), c.output<float>(out::attention::lse), s,
         order);
}

template <class Tile>
void start_wide_grads(const KernelCall& c, const AttentionSizes& s) {
  using T = typename Tile::Numbers::Element;
  WideGradArgs<T> args = {c.input<T>(in::attention_grad::d_o),
                          c.input<T>(in::attention_grad::qkv),
                          c.input<T>(in::attention_grad::o),
                          c.input<float>(in::attention_grad::lse),
                          c.output<T>(out::attention_grad::dqkv),
                          static_cast<float2*>(c.workspace),
                          s,
                          block_order(c, s, Tile::rows, s.heads, s.causal)};
  launch(c, flash_wide_grad<Tile, false>, blocks_of(args.order, s), Tile::threads, size_t(Tile::grad_bytes), args);
  args.order = block_order(c, s, Tile::rows, s.kv_heads, false);
  launch(c, flash_wide_grad<Tile, true>, blocks_of(args.order, s), Tile::threads, size_t(Tile::grad_bytes), args);
}

}  // namespace crest::cuda
