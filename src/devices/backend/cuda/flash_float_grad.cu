// cuda.flash.fp32 and cuda.flash.tf32 of attention_grad: FlashAttention-2 (Dao 2023), algorithm 2,
// on floats (device/flash_float.h), split into two kernels as flash_grad.h is.
#include "backend/cuda/device/flash_float.h"
#include "backend/cuda/device/flash_softmax.h"
#include "backend/cuda/flash.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

// slice: streamed rows with scores in registers at a time.
template <int D_, int MT_, int Warps_, int Columns_, int Slice_, int MinBlocks_>
struct Tile {
  static constexpr int D = D_, MT = MT_, warps = Warps_, columns = Columns_, slice = Slice_, min_blocks = MinBlocks_;
  static constexpr int threads = 32 * warps, warp_rows = 16 * MT, rows = warps * warp_rows;
  // Floats: a stage is two streamed tiles, then their statistics.
  static constexpr int fixed = rows * float_pitch<D>, streamed = columns * float_pitch<D>;
  static constexpr int stage = 2 * streamed + 2 * columns, shared_bytes = 4 * (2 * fixed + 2 * stage);
  static_assert(columns % slice == 0 && slice % 16 == 0 && slice <= 64);
};

struct GradArgs {
  const float *d_o, *q, *kv, *o, *lse;
  float *dq, *dkv;
  float2* statistics;  // [batch, heads, rows]: lse, dO . O
  AttentionSizes s;
  BlockOrder order;
};

// Statistics of the query rows of this warp, two a lane and m-fragment; writes them for the other
// kernel.
template <int MT>
__device__ inline void query_statistics(const GradArgs& a, const BlockPlace& at, int first, QueryChunk chunk,
                                        float (&lse)[MT][2], float (&delta)[MT][2]) {
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
  auto o = output_rows(a.o, a.s, at.batch, at.head, chunk), d_o = output_rows(a.d_o, a.s, at.batch, at.head, chunk);
  int64_t head = first_statistic(a.s, at.batch, at.head, chunk);
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int row = first + 16 * m + 8 * h + g;
      float sum = 0;
      for (int column = 4 * t; column < a.s.head_dim; column += 16) {
        Vec<float, 4> x = load_quad(o, row, column), y = load_quad(d_o, row, column);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum = fmaf(x.x[i], y.x[i], sum);
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      bool valid = row < a.s.queries;
      delta[m][h] = sum, lse[m][h] = valid ? a.lse[head + row] : 0.f;
      if (valid && t == 0) a.statistics[head + row] = make_float2(lse[m][h], sum);
    }
}

// Queries: the tile's rows are queries, their gradient is summed over keys. Keys: the other way
// round.
template <class Tile, int Passes, bool Keys>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks) flash_float_grad(GradArgs a) {
  wait_for_predecessors();
  constexpr int D = Tile::D, MT = Tile::MT, N = Tile::columns, NT = Tile::slice / 8, pitch = float_pitch<D>;
  const AttentionSizes& s = a.s;
  CREST_DYNAMIC_SHARED(float, fixed1);
  float *fixed2 = fixed1 + Tile::fixed, *stages = fixed2 + Tile::fixed;
  BlockPlace at = place_of_block(a.order, s.batch);
  QueryChunk chunk = {};  // of the fixed or the streamed queries
  if constexpr (!Keys) chunk = chunk_of(s, Tile::rows, at.tile);
  int warp = int(threadIdx.x / 32), t = int(threadIdx.x % 4);
  int block_row = at.tile * Tile::rows, tile_row = warp * Tile::warp_rows, warp_row = block_row + tile_row;

  // Streamed tiles: of keys, up to the last one seen by a query of the block; of queries, from the
  // first one with a view of a key of the block, for one head of the group after the other, and
  // for one chunk after the other.
  int first_tile = 0, tiles = 0;
  auto stream = [&](QueryChunk of) {
    if constexpr (Keys) {
      chunk = of;
      tiles = (s.queries + N - 1) / N;
      first_tile = s.causal ? min(max(block_row - of.shift, 0) / N, tiles) : 0;
      if (s.has_first())  // queries with visible keys only behind the block's
        while (tiles > first_tile && first_key(s, at.batch, (tiles - 1) * N, of) >= block_row + Tile::rows) --tiles;
    } else {
      const int last = s.causal ? min(s.tokens, block_row + of.shift + Tile::rows) : s.tokens;
      tiles = (last + N - 1) / N;
      if (s.has_first()) first_tile = first_key(s, at.batch, block_row, of) / N;
    }
    return (tiles - first_tile) * (Keys ? s.group() : 1);
  };
  int rounds = stream(Keys ? chunk_number(s, 0) : chunk);
  const int first_head = Keys ? at.head * s.group() : at.head / s.group();  // of the streamed rows
  auto load_stage = [&](int round, int head, int row) {
    float* stage = stages + round % 2 * Tile::stage;
    if constexpr (Keys) {
      load_float_tile<D, N, Tile::threads>(stage, query_rows(a.q, s, at.batch, head, chunk), row);
      load_float_tile<D, N, Tile::threads>(stage + Tile::streamed, output_rows(a.d_o, s, at.batch, head, chunk), row);
      // Zeros for rows beyond the end: their P is 1, their dO and dS are 0.
      const float2* from = a.statistics + first_statistic(s, at.batch, head, chunk);
      SharedAddress to = shared_address(stage + 2 * Tile::streamed);
      for (int i = int(threadIdx.x); i < N; i += Tile::threads) {
        bool valid = row + i < s.queries;
        copy_async<8>(to + unsigned(8 * i), from + (valid ? row + i : 0), valid);
      }
    } else {
      load_float_tile<D, N, Tile::threads>(stage, key_rows(a.kv, s, at.batch, head), row);
      load_float_tile<D, N, Tile::threads>(stage + Tile::streamed, value_rows(a.kv, s, at.batch, head), row);
    }
  };
  auto round_stage = [&](int round) {
    float* stage = stages + round % 2 * Tile::stage;
    round_float_tile<Passes, D, N, Tile::threads>(stage);
    round_float_tile<Passes, D, N, Tile::threads>(stage + Tile::streamed);
  };
  load_float_tile<D, Tile::rows, Tile::threads>(
      fixed1, Keys ? key_rows(a.kv, s, at.batch, at.head) : query_rows(a.q, s, at.batch, at.head, chunk), block_row);
  load_float_tile<D, Tile::rows, Tile::threads>(
      fixed2, Keys ? value_rows(a.kv, s, at.batch, at.head) : output_rows(a.d_o, s, at.batch, at.head, chunk),
      block_row);
  load_stage(0, first_head, first_tile * N);
  copy_commit();
  float row_lse[MT][2] = {}, row_delta[MT][2] = {};
  if constexpr (!Keys) query_statistics<MT>(a, at, warp_row, chunk, row_lse, row_delta);
  copy_wait<0>();
  round_float_tile<Passes, D, Tile::rows, Tile::threads>(fixed1);
  round_float_tile<Passes, D, Tile::rows, Tile::threads>(fixed2);
  round_stage(0);
  __syncthreads();

  const float *rows1 = fixed1 + tile_row * pitch, *rows2 = fixed2 + tile_row * pitch;
  float sum1[MT][D / 8][4] = {}, sum2[Keys ? MT : 1][D / 8][4] = {};  // dQ; or dK and dV
  for (int next = 1;; ++next) {
    int tile = first_tile, head = first_head;
    for (int round = 0; round < rounds; ++round) {
      // The stage was read in the round before; the barrier at its end made it free.
      int next_tile = tile + 1 < tiles ? tile + 1 : first_tile, next_head = head + (Keys && tile + 1 == tiles);
      if (round + 1 < rounds) load_stage(round + 1, next_head, next_tile * N);
      copy_commit();
      const float* stage = stages + round % 2 * Tile::stage;
#pragma unroll 1
      for (int slice = 0; slice < N; slice += Tile::slice) {
        int column = tile * N + slice;
        // Causal: a query sees the keys up to its own position.
        bool seen = warp_row < (Keys ? s.tokens : s.queries) && column < (Keys ? s.queries : s.tokens) &&
                    (!s.causal || (Keys ? column + chunk.shift + Tile::slice > warp_row
                                        : column < warp_row + chunk.shift + Tile::warp_rows));
        if (s.has_first())
          seen = seen && (Keys ? first_key(s, at.batch, column, chunk) < warp_row + Tile::warp_rows
                               : column + Tile::slice > first_key(s, at.batch, warp_row, chunk));
        if (!seen) continue;
        const float *streamed1 = stage + slice * pitch, *streamed2 = streamed1 + Tile::streamed;
        float p[MT][NT][4];
        multiply_rows<Passes, D>(p, rows1, streamed1);

        // {lse, dO . O} of this lane's two columns of fragment n.
        auto column_statistics = [&](int n) {
          return load_vec<4>(stage + 2 * Tile::streamed + 2 * slice + 16 * n + 4 * t);
        };
        if (s.has_first())
          hide_pairs<Keys, true>(p, s, at.batch, warp_row, column, chunk);
        else
          hide_pairs<Keys, false>(p, s, at.batch, warp_row, column, chunk);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          Vec<float, 4> of_columns = {};
          if constexpr (Keys) of_columns = column_statistics(n);
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float lse = Keys ? of_columns.x[i % 2 * 2] : row_lse[m][i / 2];
              p[m][n][i] = exp2_fast(fmaf(p[m][n][i], s.scale, -lse) * log2_e);
            }
        }

        uint32_t kept[MT] = {};
        if (s.dropout.scalars) {
          DropoutHead rule(s.dropout, at.batch, Keys ? head : at.head, s.tokens);
#pragma unroll
          for (int m = 0; m < MT; ++m)
            kept[m] = Keys ? kept_by_keys<NT>(rule, warp_row + 16 * m, column + chunk.shift)
                           : kept_by_queries<NT>(rule, warp_row + chunk.shift + 16 * m, column);
        }
        if constexpr (Keys) {
          if (s.dropout.scalars) {
            float dropped[MT][NT][4];
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
              for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) dropped[m][n][i] = kept[m] >> (4 * n + i) & 1 ? p[m][n][i] : 0.f;
            add_weighted<Passes, D>(sum2, dropped, streamed2);
          } else {
            add_weighted<Passes, D>(sum2, p, streamed2);
          }
        }

        float ds[MT][NT][4];
        multiply_rows<Passes, D>(ds, rows2, streamed2);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          Vec<float, 4> of_columns = {};
          if constexpr (Keys) of_columns = column_statistics(n);
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float x = ds[m][n][i], delta = Keys ? of_columns.x[i % 2 * 2 + 1] : row_delta[m][i / 2];
              if (s.dropout.scalars) x = kept[m] >> (4 * n + i) & 1 ? x * s.dropout.keep_scale : 0.f;
              ds[m][n][i] = p[m][n][i] * (x - delta);
            }
        }
        add_weighted<Passes, D>(sum1, ds, streamed1);
      }
      tile = next_tile, head = next_head;
      copy_wait<0>();
      if (round + 1 < rounds) round_stage(round + 1);
      __syncthreads();
    }
    if (!Keys || next >= s.chunks) break;
    rounds = stream(chunk_number(s, next));
    load_stage(0, first_head, first_tile * N);
    copy_commit();
    copy_wait<0>();
    round_stage(0);
    __syncthreads();
  }

  float factor[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m) factor[m][0] = factor[m][1] = s.scale;
  if constexpr (Keys) {
    store_weighted(key_rows(a.dkv, s, at.batch, at.head), warp_row, sum1, factor);
#pragma unroll
    for (int m = 0; m < MT; ++m) factor[m][0] = factor[m][1] = s.dropout.scalars ? s.dropout.keep_scale : 1.f;
    store_weighted(value_rows(a.dkv, s, at.batch, at.head), warp_row, sum2, factor);
  } else {
    store_weighted(query_rows(a.dq, s, at.batch, at.head, chunk), warp_row, sum1, factor);
  }
}

// Large: as many rows a warp as registers hold sums for. Small: more blocks for short batches, less
// shared memory.
template <int D, int Passes>
struct Tiles {
  static constexpr int slice = Passes == 1 ? 32 : 16;
  using LargeQueries = std::conditional_t<D <= 64, Tile<D, 2, 4, 32, slice, 2>, Tile<D, 1, 8, 32, slice, 1>>;
  using LargeKeys = std::conditional_t<D <= 64, Tile<D, 2, 4, 32, 16, 2>, Tile<D, 1, 8, 32, slice, 1>>;
  using Small = Tile<D, 1, D <= 96 ? 4 : 2, 16, 16, 2>;
};

template <class Tile, int Passes, bool Keys>
void start(const KernelCall& c, const AttentionSizes& s) {
  const GradOperands at = grad_operands(c);
  BlockOrder order = Keys ? key_order(c, s, Tile::rows) : block_order(c, s, Tile::rows, s.heads, s.causal);
  GradArgs args = {c.input<float>(at.d_o),
                   c.input<float>(at.q),
                   c.input<float>(at.kv),
                   c.input<float>(at.o),
                   c.input<float>(at.lse),
                   c.output<float>(at.dq),
                   c.output<float>(at.dkv),
                   static_cast<float2*>(c.workspace),
                   s,
                   order};
  launch(c, flash_float_grad<Tile, Passes, Keys>, blocks_of(order, s), Tile::threads, size_t(Tile::shared_bytes), args);
}

template <int Passes>
void launch_grad(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, grad_operands(c));
  with_head_dim(s.head_dim, [&](auto d) {
    using Queries = typename Tiles<d(), Passes>::LargeQueries;
    using Keys = typename Tiles<d(), Passes>::LargeKeys;
    using Small = typename Tiles<d(), Passes>::Small;
    if (prefer_small_tiles(c, s, s.kv_heads, Keys::rows, std::max(Queries::shared_bytes, Keys::shared_bytes))) {
      start<Small, Passes, false>(c, s);
      start<Small, Passes, true>(c, s);
    } else {
      start<Queries, Passes, false>(c, s);
      start<Keys, Passes, true>(c, s);
    }
  });
}

template <int Passes>
std::string reject(const KernelQuery& q) {
  return reject_flash(q, grad_operands(q.instr).q,
                      {Passes == 1 ? FlashHeads::tf32 : FlashHeads::fp32, 1, max_flash_head_dim}, [](int head_dim) {
                        return with_head_dim(head_dim,
                                             [](auto d) { return size_t(Tiles<d(), Passes>::Small::shared_bytes); });
                      });
}

}  // namespace

Kernel flash_tf32_grad_kernel() {
  return {"attention_grad",     "cuda.flash.tf32", reject<1>,
          flash_grad_workspace, nullptr,           CREST_DEVICE_CODE(launch_grad<1>)};
}
Kernel flash_fp32_grad_kernel() {
  return {"attention_grad",     "cuda.flash.fp32", reject<3>,
          flash_grad_workspace, nullptr,           CREST_DEVICE_CODE(launch_grad<3>)};
}

Kernel flash_tf32_rows_grad_kernel() {
  return {"attention_rows_grad", "cuda.flash.tf32", reject<1>,
          flash_grad_workspace,  nullptr,           CREST_DEVICE_CODE(launch_grad<1>)};
}
Kernel flash_fp32_rows_grad_kernel() {
  return {"attention_rows_grad", "cuda.flash.fp32", reject<3>,
          flash_grad_workspace,  nullptr,           CREST_DEVICE_CODE(launch_grad<3>)};
}

}  // namespace crest::cuda
