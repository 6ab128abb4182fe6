// cuda.flash.fp32 and cuda.flash.tf32: FlashAttention-2 (Dao 2023), algorithm 1, on floats
// (device/flash_float.h). A block takes a tile of queries of one head, a warp 16 MT of its rows.
// There is one tile of keys and one of values: values are copied while scores are computed, the
// next keys while these are weighted.
#include "backend/cuda/device/flash_float.h"
#include "backend/cuda/device/flash_softmax.h"
#include "backend/cuda/flash.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <int D_, int MT_, int Columns_, int MinBlocks_>
struct Tile {
  static constexpr int D = D_, MT = MT_, columns = Columns_, min_blocks = MinBlocks_;
  static constexpr int warps = 4, threads = 32 * warps, warp_rows = 16 * MT, rows = warps * warp_rows;
  static constexpr int shared_bytes = 4 * float_pitch<D> * (rows + 2 * columns);
};

template <class Tile, int Passes>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
    flash_float_forward(const float* q, const float* kv, float* o_out, float* lse, AttentionSizes s, BlockOrder order) {
  wait_for_predecessors();
  constexpr int D = Tile::D, MT = Tile::MT, N = Tile::columns, NT = N / 8;
  CREST_DYNAMIC_SHARED(float, q_tile);
  float *k_tile = q_tile + Tile::rows * float_pitch<D>, *v_tile = k_tile + N * float_pitch<D>;
  BlockPlace at = place_of_block(order, s.batch);
  const QueryChunk chunk = chunk_of(s, Tile::rows, at.tile);
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), g = lane / 4, t = lane % 4;
  int block_row = at.tile * Tile::rows, warp_row = block_row + warp * Tile::warp_rows, kv_head = at.head / s.group();
  auto keys = key_rows(kv, s, at.batch, kv_head), values = value_rows(kv, s, at.batch, kv_head);
  int visible = s.causal ? min(s.tokens, block_row + chunk.shift + Tile::rows) : s.tokens,
      tiles = (visible + N - 1) / N;
  // Tiles before the first key of the block's rows are passed over.
  int first_tile = s.has_first() ? first_key(s, at.batch, block_row, chunk) / N : 0;
  int warp_first = s.has_first() ? first_key(s, at.batch, warp_row, chunk) : 0;

  load_float_tile<D, Tile::rows, Tile::threads>(q_tile, query_rows(q, s, at.batch, at.head, chunk), block_row);
  load_float_tile<D, N, Tile::threads>(k_tile, keys, first_tile * N);
  copy_commit();
  copy_wait<0>();
  round_float_tile<Passes, D, Tile::rows, Tile::threads>(q_tile);

  float o[MT][D / 8][4] = {};
  OnlineSoftmax<MT> softmax(s.scale);
  for (int tile = first_tile; tile < tiles; ++tile) {
    int column = tile * N;
    round_float_tile<Passes, D, N, Tile::threads>(k_tile);
    __syncthreads();  // the keys are there, the values before are no longer read
    load_float_tile<D, N, Tile::threads>(v_tile, values, column);
    copy_commit();
    bool seen = warp_row < s.queries && (!s.causal || column < warp_row + chunk.shift + Tile::warp_rows);
    if (s.has_first()) seen = seen && column + N > warp_first;
    float p[MT][NT][4];
    if (seen) multiply_rows<Passes, D>(p, q_tile + warp * Tile::warp_rows * float_pitch<D>, k_tile);
    copy_wait<0>();
    round_float_tile<Passes, D, N, Tile::threads>(v_tile);
    __syncthreads();  // the values are there, the keys are no longer read
    if (tile + 1 < tiles) load_float_tile<D, N, Tile::threads>(k_tile, keys, column + N);
    copy_commit();
    if (seen) {
      if (s.has_first())
        hide_keys<true>(p, s, at.batch, warp_row, column, chunk);
      else
        hide_keys<false>(p, s, at.batch, warp_row, column, chunk);
      softmax.template update<true>(p, o);
      if (s.dropout.scalars) {
        DropoutHead head(s.dropout, at.batch, at.head, s.tokens);
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          uint32_t kept = kept_by_queries<NT>(head, warp_row + chunk.shift + 16 * m, column);
#pragma unroll
          for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) p[m][n][e] = kept >> (4 * n + e) & 1 ? p[m][n][e] : 0.f;
        }
      }
      add_weighted<Passes, D>(o, p, v_tile);
    }
    copy_wait<0>();
  }

  float factor[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = softmax.sum[m][h];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[m][h] = (s.dropout.scalars ? s.dropout.keep_scale : 1.f) / sum;
      int row = warp_row + 16 * m + 8 * h + g;
      if (t == 0 && row < s.queries)
        lse[first_statistic(s, at.batch, at.head, chunk) + row] = fmaf(softmax.largest[m][h], s.scale, logf(sum));
    }
  store_weighted(output_rows(o_out, s, at.batch, at.head, chunk), warp_row, o, factor);
}

// Large: 32 rows a warp halve the reads and splits of keys and values. Small: more blocks for short
// batches, less shared memory.
template <int D, int Passes>
struct Tiles {
  static constexpr int columns = Passes == 1 || D <= 64 ? 32 : 16;
  using Large = Tile<D, 2, columns, 2>;
  using Small = Tile<D, 1, 32, 2>;
};

template <class Tile, int Passes>
void start(const KernelCall& c, const AttentionSizes& s) {
  const AttentionOperands at = attention_operands(c);
  BlockOrder order = block_order(c, s, Tile::rows, s.heads, s.causal);
  launch(c, flash_float_forward<Tile, Passes>, blocks_of(order, s), Tile::threads, size_t(Tile::shared_bytes),
         c.input<float>(at.q), c.input<float>(at.kv), c.output<float>(out::attention::o),
         c.output<float>(out::attention::lse), s, order);
}

template <int Passes>
void launch_forward(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, attention_operands(c));
  with_head_dim(s.head_dim, [&](auto d) {
    using Large = typename Tiles<d(), Passes>::Large;
    if (prefer_small_tiles(c, s, s.heads, Large::rows, Large::shared_bytes))
      start<typename Tiles<d(), Passes>::Small, Passes>(c, s);
    else
      start<Large, Passes>(c, s);
  });
}

template <int Passes>
std::string reject(const KernelQuery& q) {
  return reject_flash(q, attention_operands(q.instr).q,
                      {Passes == 1 ? FlashHeads::tf32 : FlashHeads::fp32, 1, max_flash_head_dim}, [](int head_dim) {
                        return with_head_dim(head_dim,
                                             [](auto d) { return size_t(Tiles<d(), Passes>::Small::shared_bytes); });
                      });
}

}  // namespace

Kernel flash_tf32_kernel() {
  return {"attention", "cuda.flash.tf32", reject<1>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<1>)};
}
Kernel flash_fp32_kernel() {
  return {"attention", "cuda.flash.fp32", reject<3>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<3>)};
}
Kernel flash_tf32_rows_kernel() {
  return {"attention_rows", "cuda.flash.tf32", reject<1>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<1>)};
}
Kernel flash_fp32_rows_kernel() {
  return {"attention_rows", "cuda.flash.fp32", reject<3>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<3>)};
}

}  // namespace crest::cuda
