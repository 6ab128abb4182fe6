// The forward kernel of FlashAttention-2 (Dao 2023), algorithm 1, on tensor cores. A block takes a
// tile of queries of one head, a warp 16 MT of its rows; keys and values come in tiles, copied two
// deep. Scores stay in registers: C fragments of Q K^T are the A fragments of P V. Softmax runs in
// powers of two on scores scaled by log2(e); row maxima may lag behind by a factor of 2^8, so the
// accumulators are rescaled rarely.
#pragma once
#include "backend/cuda/device/flash_softmax.h"
#include "backend/cuda/flash.h"
#include "ops/index.h"

namespace crest::cuda {

template <int D_, int MT_, int Warps_, int Columns_, bool QInRegisters_, int MinBlocks_>
struct ForwardTile {
  static constexpr int D = D_, MT = MT_, warps = Warps_, columns = Columns_, min_blocks = MinBlocks_;
  static constexpr bool q_in_registers = QInRegisters_;
  static constexpr int threads = 32 * warps, warp_rows = 16 * MT, rows = warps * warp_rows;
  static constexpr int q_bytes = rows * 2 * D, stage_bytes = 2 * columns * 2 * D;  // a stage: keys, then values
  static constexpr int shared_bytes = q_bytes + 2 * stage_bytes;
};

// First: queries have a first key (documents, window).
template <class T, class Tile, bool Dropout, bool First>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
    flash_forward(const T* q_in, const T* kv, T* o_out, float* lse, AttentionSizes s, BlockOrder order) {
  wait_for_predecessors();
  constexpr int D = Tile::D, MT = Tile::MT, N = Tile::columns, NT = N / 8;
  CREST_DYNAMIC_SHARED(unsigned char, shared);
  unsigned char *q_tile = shared, *stages = shared + Tile::q_bytes;
  BlockPlace at = place_of_block(order, s.batch);
  const QueryChunk chunk = chunk_of(s, Tile::rows, at.tile);
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), g = lane / 4, t = lane % 4;
  int block_row = at.tile * Tile::rows, warp_row = block_row + warp * Tile::warp_rows, kv_head = at.head / s.group();
  auto keys = key_rows(kv, s, at.batch, kv_head), values = value_rows(kv, s, at.batch, kv_head);
  int visible = s.causal ? min(s.tokens, block_row + chunk.shift + Tile::rows) : s.tokens,
      tiles = (visible + N - 1) / N;
  // Tiles before the first key of the block's rows are passed over.
  int first_tile = First ? first_key(s, at.batch, block_row, chunk) / N : 0;
  int warp_first = First ? first_key(s, at.batch, warp_row, chunk) : 0;

  auto load_stage = [&](int tile) {
    unsigned char* stage = stages + tile % 2 * Tile::stage_bytes;
    load_tile<D, N, Tile::threads>(stage, keys, tile * N);
    load_tile<D, N, Tile::threads>(stage + N * 2 * D, values, tile * N);
  };
  load_tile<D, Tile::rows, Tile::threads>(q_tile, query_rows(q_in, s, at.batch, at.head, chunk), block_row);
  load_stage(first_tile);
  copy_commit();
  copy_wait<0>();
  __syncthreads();

  auto by_rows = LaneRow<D>::by_rows(), by_chunks = LaneRow<D>::by_chunks();
  RowFragments<D, MT, Tile::q_in_registers> q;
  q.load(shared_address(q_tile) + unsigned(warp * Tile::warp_rows * 2 * D), by_rows);
  float o[MT][D / 8][4] = {};
  OnlineSoftmax<MT> softmax(s.scale);
  for (int tile = first_tile; tile < tiles; ++tile) {
    // The stage was read in the round before; the barrier at its end made it free.
    if (tile + 1 < tiles) load_stage(tile + 1);
    copy_commit();
    int column = tile * N;
    bool seen = warp_row < s.queries && (!s.causal || column < warp_row + chunk.shift + Tile::warp_rows);
    if (First) seen = seen && column + N > warp_first;
    if (seen) {
      SharedAddress stage = shared_address(stages) + unsigned(tile % 2 * Tile::stage_bytes);
      float p[MT][NT][4];
      multiply_transposed<T, D>(p, q, stage, by_rows, by_chunks);
      hide_keys<First>(p, s, at.batch, warp_row, column, chunk);
      softmax.template update<First>(p, o);
      uint32_t packed[MT][NT][2];
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        if constexpr (Dropout) {
          DropoutHead head(s.dropout, at.batch, at.head, s.tokens);
          uint32_t kept = kept_by_queries<NT>(head, warp_row + chunk.shift + 16 * m, column);
#pragma unroll
          for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) p[m][n][e] = kept >> (4 * n + e) & 1 ? p[m][n][e] : 0.f;
        }
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int h = 0; h < 2; ++h) packed[m][n][h] = pack2<T>(p[m][n][2 * h], p[m][n][2 * h + 1]);
      }
      multiply_accumulate<T, D>(o, packed, stage + unsigned(N * 2 * D), by_rows);
    }
    copy_wait<0>();
    __syncthreads();
  }

  float factor[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = softmax.sum[m][h];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[m][h] = (Dropout ? s.dropout.keep_scale : 1.f) / sum;
      int row = warp_row + 16 * m + 8 * h + g;
      if (t == 0 && row < s.queries)
        lse[first_statistic(s, at.batch, at.head, chunk) + row] = fmaf(softmax.largest[m][h], s.scale, logf(sum));
    }
  // Through this warp's rows of the query tile, read by no other warp.
  __syncwarp();
  fragments_to_tile<D, T>(q_tile, warp * Tile::warp_rows, o, factor);
  __syncwarp();
  store_rows<D, T>(q_tile, warp * Tile::warp_rows, Tile::warp_rows, output_rows(o_out, s, at.batch, at.head, chunk),
                   warp_row);
}

template <class T, class Tile, bool Dropout, bool First = false>
void start_forward(const KernelCall& c, const AttentionSizes& s) {
  const AttentionOperands at = attention_operands(c);
  BlockOrder order = block_order(c, s, Tile::rows, s.heads, s.causal);
  launch(c, flash_forward<T, Tile, Dropout, First>, blocks_of(order, s), Tile::threads, size_t(Tile::shared_bytes),
         c.input<T>(at.q), c.input<T>(at.kv), c.output<T>(out::attention::o), c.output<float>(out::attention::lse), s,
         order);
}

}  // namespace crest::cuda
