// The kernels of attention_grad: FlashAttention-2 (Dao 2023), algorithm 2, on tensor cores, without
// atomics and so bitwise identical in every run. Two kernels of one shape:
//   queries: a block takes a tile of queries and goes over the keys:    dQ = scale dS K
//   keys:    a block takes a tile of keys and goes over the queries of all heads of its group:
//                                                                       dV = P^T dO, dK = scale dS^T Q
// Both compute P (from lse) and dP = dO V^T: seven products. A single kernel needs five, but would
// sum dQ over blocks in global memory. In return, P and dS go from the accumulators straight into
// the next product, because the fixed side gives the rows of all products in both kernels. The
// first kernel also writes {lse log2(e), dO . O} of every query row for the second.
#pragma once
#include "backend/cuda/device/flash_softmax.h"
#include "backend/cuda/flash.h"
#include "ops/index.h"

namespace crest::cuda {

// slice: streamed rows with scores in registers at a time.
template <int D_, int MT_, int Warps_, int Columns_, int Slice_, bool FixedInRegisters_, int MinBlocks_>
struct GradTile {
  static constexpr int D = D_, MT = MT_, warps = Warps_, columns = Columns_, slice = Slice_, min_blocks = MinBlocks_;
  static constexpr bool fixed_in_registers = FixedInRegisters_;
  static constexpr int threads = 32 * warps, warp_rows = 16 * MT, rows = warps * warp_rows;
  static constexpr int fixed_bytes = rows * 2 * D, streamed_bytes = columns * 2 * D, statistics_bytes = columns * 8;
  static constexpr int stage_bytes = 2 * streamed_bytes + statistics_bytes;
  static constexpr int shared_bytes = 2 * fixed_bytes + 2 * stage_bytes;
  static_assert(columns % slice == 0 && slice % 16 == 0 && slice <= 64);
};

template <class T>
struct GradArgs {
  const T *d_o, *q, *kv, *o;
  const float* lse;
  T *dq, *dkv;
  float2* statistics;  // [batch, heads, rows]: lse log2(e), dO . O
  AttentionSizes s;
  BlockOrder order;
};

// Statistics of the query rows of this warp, two a lane and m-fragment; writes them for the other
// kernel.
template <class Tile, class T>
__device__ inline void query_statistics(const GradArgs<T>& a, const BlockPlace& at, const unsigned char* d_o_tile,
                                        int tile_row, int row, QueryChunk chunk, float (&lse2)[Tile::MT][2],
                                        float (&delta)[Tile::MT][2]) {
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
  auto o = output_rows(a.o, a.s, at.batch, at.head, chunk);
  int64_t first = first_statistic(a.s, at.batch, at.head, chunk);
#pragma unroll
  for (int m = 0; m < Tile::MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int local = 16 * m + 8 * h + g;
      float sum = 0;
#pragma unroll
      for (int chunk = t; chunk < Tile::D / 8; chunk += 4) {
        Vec<T, 8> x = load_chunk(o, row + local, chunk);
        Vec<T, 8> y =
            load_vec<8>(reinterpret_cast<const T*>(d_o_tile + TileLayout<Tile::D>::offset(tile_row + local, chunk)));
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(widen(x.x[i]), widen(y.x[i]), sum);
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      bool valid = row + local < a.s.queries;
      delta[m][h] = sum, lse2[m][h] = valid ? a.lse[first + row + local] * log2_e : 0.f;
      if (valid && t == 0) a.statistics[first + row + local] = make_float2(lse2[m][h], sum);
    }
}

// First: queries have a first key (documents, window).
template <class T, class Tile, bool Keys, bool Dropout, bool First>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks) flash_grad(GradArgs<T> a) {
  wait_for_predecessors();
  constexpr int D = Tile::D, MT = Tile::MT, N = Tile::columns, NT = Tile::slice / 8;
  const AttentionSizes& s = a.s;
  CREST_DYNAMIC_SHARED(unsigned char, shared);
  unsigned char *fixed1 = shared, *fixed2 = shared + Tile::fixed_bytes, *stages = fixed2 + Tile::fixed_bytes;
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
      if constexpr (First)  // queries with visible keys only behind the block's
        while (tiles > first_tile && first_key(s, at.batch, (tiles - 1) * N, of) >= block_row + Tile::rows) --tiles;
    } else {
      const int last = s.causal ? min(s.tokens, block_row + of.shift + Tile::rows) : s.tokens;
      tiles = (last + N - 1) / N;
      if constexpr (First) first_tile = first_key(s, at.batch, block_row, of) / N;
    }
    return (tiles - first_tile) * (Keys ? s.group() : 1);
  };
  int rounds = stream(Keys ? chunk_number(s, 0) : chunk);
  auto load_stage = [&](int round, int head, int row) {
    unsigned char* stage = stages + round % 2 * Tile::stage_bytes;
    if constexpr (Keys) {
      load_tile<D, N, Tile::threads>(stage, query_rows(a.q, s, at.batch, head, chunk), row);
      load_tile<D, N, Tile::threads>(stage + Tile::streamed_bytes, output_rows(a.d_o, s, at.batch, head, chunk), row);
      // Zeros for rows beyond the end: their P is 1, their dO and dS are 0.
      const float2* from = a.statistics + first_statistic(s, at.batch, head, chunk);
      SharedAddress to = shared_address(stage + 2 * Tile::streamed_bytes);
      for (int i = int(threadIdx.x); i < N; i += Tile::threads) {
        bool valid = row + i < s.queries;
        copy_async<8>(to + unsigned(8 * i), from + (valid ? row + i : 0), valid);
      }
    } else {
      load_tile<D, N, Tile::threads>(stage, key_rows(a.kv, s, at.batch, head), row);
      load_tile<D, N, Tile::threads>(stage + Tile::streamed_bytes, value_rows(a.kv, s, at.batch, head), row);
    }
  };
  if constexpr (Keys) {
    load_tile<D, Tile::rows, Tile::threads>(fixed1, key_rows(a.kv, s, at.batch, at.head), block_row);
    load_tile<D, Tile::rows, Tile::threads>(fixed2, value_rows(a.kv, s, at.batch, at.head), block_row);
  } else {
    load_tile<D, Tile::rows, Tile::threads>(fixed1, query_rows(a.q, s, at.batch, at.head, chunk), block_row);
    load_tile<D, Tile::rows, Tile::threads>(fixed2, output_rows(a.d_o, s, at.batch, at.head, chunk), block_row);
  }
  const int first_head = Keys ? at.head * s.group() : at.head / s.group();  // of the streamed rows
  load_stage(0, first_head, first_tile * N);
  copy_commit();
  copy_wait<0>();
  __syncthreads();

  auto by_rows = LaneRow<D>::by_rows(), by_chunks = LaneRow<D>::by_chunks();
  RowFragments<D, MT, Tile::fixed_in_registers> rows1, rows2;
  rows1.load(shared_address(fixed1) + unsigned(tile_row * 2 * D), by_rows);
  rows2.load(shared_address(fixed2) + unsigned(tile_row * 2 * D), by_rows);
  float row_lse2[MT][2] = {}, row_delta[MT][2] = {};
  if constexpr (!Keys) query_statistics<Tile>(a, at, fixed2, tile_row, warp_row, chunk, row_lse2, row_delta);

  float sum1[MT][D / 8][4] = {}, sum2[Keys ? MT : 1][D / 8][4] = {};  // dQ; or dK and dV
  float scale_log2 = s.scale * log2_e;
  for (int next = 1;; ++next) {
    int tile = first_tile, head = first_head;
    for (int round = 0; round < rounds; ++round) {
      // The stage was read in the round before; the barrier at its end made it free.
      int next_tile = tile + 1 < tiles ? tile + 1 : first_tile, next_head = head + (Keys && tile + 1 == tiles);
      if (round + 1 < rounds) load_stage(round + 1, next_head, next_tile * N);
      copy_commit();
      const unsigned char* stage = stages + round % 2 * Tile::stage_bytes;
#pragma unroll 1
      for (int slice = 0; slice < N; slice += Tile::slice) {
        int column = tile * N + slice;
        // Causal: a query sees the keys up to its own position.
        bool seen = warp_row < (Keys ? s.tokens : s.queries) && column < (Keys ? s.queries : s.tokens) &&
                    (!s.causal || (Keys ? column + chunk.shift + Tile::slice > warp_row
                                        : column < warp_row + chunk.shift + Tile::warp_rows));
        if constexpr (First)
          seen = seen && (Keys ? first_key(s, at.batch, column, chunk) < warp_row + Tile::warp_rows
                               : column + Tile::slice > first_key(s, at.batch, warp_row, chunk));
        if (!seen) continue;
        SharedAddress streamed1 = shared_address(stage) + unsigned(slice * 2 * D);
        SharedAddress streamed2 = streamed1 + unsigned(Tile::streamed_bytes);
        float p[MT][NT][4];
        multiply_transposed<T, D>(p, rows1, streamed1, by_rows, by_chunks);

        // {lse log2(e), dO . O} of this lane's two columns of fragment n.
        auto column_statistics = [&](int n) {
          return reinterpret_cast<const float4*>(stage + 2 * Tile::streamed_bytes + slice * 8)[4 * n + t];
        };
        hide_pairs<Keys, First>(p, s, at.batch, warp_row, column, chunk);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          float4 of_columns = Keys ? column_statistics(n) : float4{};
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float lse2 = !Keys ? row_lse2[m][i / 2] : i % 2 ? of_columns.z : of_columns.x;
              p[m][n][i] = exp2_fast(fmaf(p[m][n][i], scale_log2, -lse2));
            }
        }

        uint32_t kept[MT];
        if constexpr (Dropout) {
          DropoutHead rule(s.dropout, at.batch, Keys ? head : at.head, s.tokens);
#pragma unroll
          for (int m = 0; m < MT; ++m)
            kept[m] = Keys ? kept_by_keys<NT>(rule, warp_row + 16 * m, column + chunk.shift)
                           : kept_by_queries<NT>(rule, warp_row + chunk.shift + 16 * m, column);
        }
        uint32_t packed[MT][NT][2];
        if constexpr (Keys) {
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
              for (int h = 0; h < 2; ++h) {
                float low = p[m][n][2 * h], high = p[m][n][2 * h + 1];
                if constexpr (Dropout) {
                  uint32_t two = kept[m] >> (4 * n + 2 * h);
                  low = two & 1 ? low : 0.f, high = two & 2 ? high : 0.f;
                }
                packed[m][n][h] = pack2<T>(low, high);
              }
          multiply_accumulate<T, D>(sum2, packed, streamed2, by_rows);
        }

        float dp[MT][NT][4];
        multiply_transposed<T, D>(dp, rows2, streamed2, by_rows, by_chunks);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          float4 of_columns = Keys ? column_statistics(n) : float4{};
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float ds[2];
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                float x = dp[m][n][2 * h + e], delta = !Keys ? row_delta[m][h] : e ? of_columns.w : of_columns.y;
                if constexpr (Dropout) x = kept[m] >> (4 * n + 2 * h + e) & 1 ? x * s.dropout.keep_scale : 0.f;
                ds[e] = p[m][n][2 * h + e] * (x - delta);
              }
              packed[m][n][h] = pack2<T>(ds[0], ds[1]);
            }
        }
        multiply_accumulate<T, D>(sum1, packed, streamed1, by_rows);
      }
      tile = next_tile, head = next_head;
      copy_wait<0>();
      __syncthreads();
    }
    if (!Keys || next >= s.chunks) break;
    rounds = stream(chunk_number(s, next));
    load_stage(0, first_head, first_tile * N);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
  }

  // Through this warp's rows of the fixed tiles, read by no other warp.
  float factor[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m) factor[m][0] = factor[m][1] = s.scale;
  __syncwarp();
  fragments_to_tile<D, T>(fixed1, tile_row, sum1, factor);
  if constexpr (Keys) {
#pragma unroll
    for (int m = 0; m < MT; ++m) factor[m][0] = factor[m][1] = Dropout ? s.dropout.keep_scale : 1.f;
    fragments_to_tile<D, T>(fixed2, tile_row, sum2, factor);
  }
  __syncwarp();
  if constexpr (Keys) {
    store_rows<D, T>(fixed1, tile_row, Tile::warp_rows, key_rows(a.dkv, s, at.batch, at.head), warp_row);
    store_rows<D, T>(fixed2, tile_row, Tile::warp_rows, value_rows(a.dkv, s, at.batch, at.head), warp_row);
  } else {
    store_rows<D, T>(fixed1, tile_row, Tile::warp_rows, query_rows(a.dq, s, at.batch, at.head, chunk), warp_row);
  }
}

template <class T, class Tile, bool Keys, bool Dropout, bool First>
void start_grad(const KernelCall& c, const AttentionSizes& s) {
  const GradOperands at = grad_operands(c);
  BlockOrder order = Keys ? key_order(c, s, Tile::rows) : block_order(c, s, Tile::rows, s.heads, s.causal);
  GradArgs<T> args = {c.input<T>(at.d_o),
                      c.input<T>(at.q),
                      c.input<T>(at.kv),
                      c.input<T>(at.o),
                      c.input<float>(at.lse),
                      c.output<T>(at.dq),
                      c.output<T>(at.dkv),
                      static_cast<float2*>(c.workspace),
                      s,
                      order};
  launch(c, flash_grad<T, Tile, Keys, Dropout, First>, blocks_of(order, s), Tile::threads, size_t(Tile::shared_bytes),
         args);
}

template <class T, class Queries, class Keys, bool Dropout, bool First = false>
void start_grads(const KernelCall& c, const AttentionSizes& s) {
  start_grad<T, Queries, false, Dropout, First>(c, s);
  start_grad<T, Keys, true, Dropout, First>(c, s);
}

}  // namespace crest::cuda
