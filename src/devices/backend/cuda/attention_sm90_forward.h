// attention for compute capability 9.0. A block goes over items of work: a tile of queries of one
// head. Warpgroup 0 loads by TMA; each of the others has 64 queries and goes over the keys in tiles
// of 128: scores of a tile are computed while the probabilities of the tile before meet the values,
// and softmax runs alongside both.
#pragma once
#include "backend/cuda/attention_sm90.h"

namespace crest::cuda::sm90 {

struct ForwardSizes : Sizes {
  int query_tiles, key_tiles;
  int chunk;  // heads with adjacent items in the list, the longest first
  int items;
};

struct ForwardArgs {
  CUtensorMap q, kv, o;
  ForwardSizes s;
  float* lse;
};

template <class T_, int D_, bool First_, bool Dropout_ = false>
struct ForwardTile {
  using T = T_;
  static constexpr int D = D_;
  static constexpr bool dropout = Dropout_;
  static constexpr bool first = First_;           // queries have a first key: documents, window
  static constexpr int groups = D <= 64 ? 3 : 2;  // computing warpgroups, 64 queries each
  static constexpr int threads = 128 * (groups + 1), queries = 64 * groups, keys = 128;
  static constexpr int few_registers = groups == 3 ? 32 : 24, many_registers = groups == 3 ? 160 : 240;
  static constexpr int kv_stages = D <= 64 ? 3 : 2, q_stages = 2;
  static constexpr int q_bytes = queries * D * 2, kv_bytes = keys * D * 2;
  static constexpr int q_at = 0, k_at = q_at + q_stages * q_bytes, v_at = k_at + kv_stages * kv_bytes;
  static constexpr int barriers_at = v_at + kv_stages * kv_bytes;
  static constexpr int shared_bytes = barriers_at + 8 * (2 * q_stages + 4 * kv_stages) + 1024;
  static_assert(D == 64 || D == 128);
  static_assert(shared_bytes <= max_shared_bytes);
};

// A tile of queries of a head and its visible tiles of keys [begin, end).
struct ForwardItem {
  int tile, batch, head, begin, end;
};

template <class Tile>
__device__ inline ForwardItem forward_item(const ForwardSizes& s, int item) {
  int all = s.chunk * s.query_tiles, chunk = item / all, rest = item - chunk * all;
  int heads = min(s.chunk, s.batch * s.heads - chunk * s.chunk);
  int tile = rest / heads, head = chunk * s.chunk + rest - tile * heads;
  if (s.causal) tile = s.query_tiles - 1 - tile;  // the longest first
  ForwardItem at = {tile, head / s.heads, head % s.heads, 0, s.key_tiles};
  if (s.causal)
    at.end = min(s.token(min(tile * Tile::queries + Tile::queries, s.queries) - 1) / Tile::keys + 1, s.key_tiles);
  if constexpr (Tile::first) at.begin = first_key(s, at.batch, tile * Tile::queries) / Tile::keys;
  return at;
}

// Item number `round` of this block: there and
// back again, so no block always has the longest.
__device__ inline int forward_turn(int round, int block, int blocks) {
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) forward_kernel(const __grid_constant__ ForwardArgs a) {
#if CREST_HOPPER_CODE
  using T = typename Tile::T;
  constexpr int D = Tile::D, QS = Tile::q_stages, KS = Tile::kv_stages, NT = Tile::keys / 8, G = Tile::groups;
  const ForwardSizes& s = a.s;
  unsigned char* const raw = dynamic_shared();
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  auto barrier = [&](int i) { return base + uint32_t(Tile::barriers_at + 8 * i); };
  auto q_full = [&](int i) { return barrier(i); };
  auto q_empty = [&](int i) { return barrier(QS + i); };
  auto k_full = [&](int i) { return barrier(2 * QS + i); };
  auto k_empty = [&](int i) { return barrier(2 * QS + KS + i); };
  auto v_full = [&](int i) { return barrier(2 * QS + 2 * KS + i); };
  auto v_empty = [&](int i) { return barrier(2 * QS + 3 * KS + i); };

  const int warp = warp_index(), lane = thread_index() % 32, block = block_index(), blocks = block_count();
  if (thread_index() == 0) {
    for (int i = 0; i < QS; ++i) barrier_init(q_full(i), 1), barrier_init(q_empty(i), G);
    for (int i = 0; i < KS; ++i) {
      barrier_init(k_full(i), 1), barrier_init(k_empty(i), 4 * G);
      barrier_init(v_full(i), 1), barrier_init(v_empty(i), 4 * G);
    }
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  if (warp < 4) {
    registers_give<Tile::few_registers>();
    if (warp > 0 || lane > 0) return;
    int qs = 0, qp = 1, ks = 0, kp = 1;
    for (int round = 0;; ++round) {
      int item = forward_turn(round, block, blocks);
      if (round * blocks >= s.items) break;
      if (item >= s.items) continue;
      ForwardItem at = forward_item<Tile>(s, item);
      auto load = [&](uint32_t to, const CUtensorMap* from, int rows, int column, int row, uint32_t full) {
#pragma unroll
        for (int d = 0; d < D; d += 64)
          for (int r = 0; r < rows; r += 64)
            tensor_load(to + uint32_t(d * rows * 2 + r * 128), from, column + d, row + r, at.batch, full);
      };
      barrier_wait(q_empty(qs), qp);
      barrier_arrive_expect(q_full(qs), Tile::q_bytes);
      load(base + Tile::q_at + uint32_t(qs * Tile::q_bytes), &a.q, Tile::queries, at.head * D, at.tile * Tile::queries,
           q_full(qs));
      if (++qs == QS) qs = 0, qp ^= 1;
      int key_column = (s.key_head + at.head / s.group()) * D;
      for (int j = at.begin; j < at.end; ++j) {
        barrier_wait(k_empty(ks), kp);
        barrier_arrive_expect(k_full(ks), Tile::kv_bytes);
        load(base + Tile::k_at + uint32_t(ks * Tile::kv_bytes), &a.kv, Tile::keys, key_column, j * Tile::keys,
             k_full(ks));
        barrier_wait(v_empty(ks), kp);
        barrier_arrive_expect(v_full(ks), Tile::kv_bytes);
        load(base + Tile::v_at + uint32_t(ks * Tile::kv_bytes), &a.kv, Tile::keys, key_column + s.kv_heads * D,
             j * Tile::keys, v_full(ks));
        if (++ks == KS) ks = 0, kp ^= 1;
      }
    }
    return;
  }

  registers_take<Tile::many_registers>();
  const int w = warp / 4 - 1, g = lane / 4, t = lane % 4, thread = thread_index() % 128;
  const uint32_t matrix = swizzled(16 * (warp % 4) + lane % 16, lane / 16);  // as in attention_sm90_grad.h
  const float scale_log2 = s.scale * log2_e;
  int qs = 0, qp = 0, ks = 0, kp = 0, store_stage = -1;
  for (int round = 0;; ++round) {
    int item = forward_turn(round, block, blocks);
    if (round * blocks >= s.items) break;
    if (item >= s.items) continue;
    const ForwardItem at = forward_item<Tile>(s, item);
    const int first_row = at.tile * Tile::queries + 64 * w;  // of this warpgroup
    const int first_token = s.token(first_row);              // its place in the sequence
    int end = at.end;                                        // of its keys, in tiles
    if (s.causal) end = min(end, (first_token + 63) / Tile::keys + 1);
    int begin = at.begin;
    if constexpr (Tile::first) begin = max(begin, first_key(s, at.batch, first_row) / Tile::keys);
    if (first_row >= s.queries) begin = end = at.begin;
    int row_first[2] = {};
    if constexpr (Tile::first)
      for (int h = 0; h < 2; ++h) row_first[h] = first_key(s, at.batch, first_row + 16 * (warp % 4) + g + 8 * h);
    const uint32_t q_tile = base + Tile::q_at + uint32_t(qs * Tile::q_bytes + w * 64 * 128);

    float scores[Tile::keys / 2], o[D / 2], largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    uint32_t p[Tile::keys / 4];
    auto issue_scores = [&] {
      uint64_t rows = operand(q_tile), columns = operand(base + Tile::k_at + uint32_t(ks * Tile::kv_bytes));
      wgmma_fence();
      wgmma<T, Tile::keys, false, false, true>(scores, rows, columns, 0);
#pragma unroll
      for (int k = 1; k < D / 16; ++k)
        wgmma<T, Tile::keys, false, false>(scores, rows + uint64_t((k / 4 * Tile::queries * 128 + k % 4 * 32) >> 4),
                                           columns + uint64_t((k / 4 * Tile::keys * 128 + k % 4 * 32) >> 4), 1);
      wgmma_commit();
    };
    auto issue_output = [&](int stage, bool accumulate) {
      uint64_t columns = operand(base + Tile::v_at + uint32_t(stage * Tile::kv_bytes), D > 64 ? Tile::keys * 128 : 0);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < Tile::keys / 16; ++k)
        wgmma<T, D, true>(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], columns + uint64_t(k * 2048 >> 4),
                          k > 0 || accumulate);
      wgmma_commit();
    };
    // Scores of tile j to exp2((s - largest) scale log2(e)); returns the factor for sums and o so
    // far.
    float x[Tile::keys / 2], factor[2];
    auto softmax = [&](int j) {
#pragma unroll
      for (int n = 0; n < Tile::keys / 2; ++n) x[n] = scores[n];
      const int key = j * Tile::keys + 2 * t, row = first_token + 16 * (warp % 4) + g;
      if (s.causal ? j * Tile::keys + Tile::keys - 1 > first_token : j * Tile::keys + Tile::keys > s.tokens) {
        const int last = s.causal ? row : s.tokens - 1, step = s.causal ? 8 : 0;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (key + 8 * n + e % 2 > last + e / 2 * step) x[4 * n + e] = -INFINITY;
      }
      if constexpr (Tile::first) {
        // Rows' first keys grow: the last row has the largest.
        if (j * Tile::keys < first_key(s, at.batch, first_row + 63)) {
#pragma unroll
          for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (key + 8 * n + e % 2 < row_first[e / 2]) x[4 * n + e] = -INFINITY;
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top[2] = {x[2 * h], x[2 * h + 1]};
#pragma unroll
        for (int n = 1; n < NT; ++n)
          top[0] = fmaxf(top[0], x[4 * n + 2 * h]), top[1] = fmaxf(top[1], x[4 * n + 2 * h + 1]);
        float now = fmaxf(top[0], top[1]);
        now = fmaxf(now, shuffle_xor(now, 1));
        now = fmaxf(now, shuffle_xor(now, 2));
        now = fmaxf(now, largest[h]);
        float shift = (Tile::first && now == -INFINITY) ? 0.f : now * scale_log2;
        factor[h] = exp2_fast(fmaf(largest[h], scale_log2, -shift));
        largest[h] = now;
        float total[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float y = exp2_fast(fmaf(x[4 * n + 2 * h + e], scale_log2, -shift));
            x[4 * n + 2 * h + e] = y, total[e] += y;
          }
        sum[h] = fmaf(sum[h], factor[h], total[0] + total[1]);
      }
    };
    auto pack_probabilities = [&](int j) {
      if constexpr (Tile::dropout) {
        uint32_t kept[NT / 8];
        kept_by_queries<NT>(kept, DropoutHead(s.dropout, at.batch, at.head, s.tokens), first_token + 16 * (warp % 4),
                            j * Tile::keys);
#pragma unroll
        for (int n = 0; n < Tile::keys / 2; ++n)
          if (!(kept[n / 32] >> n % 32 & 1)) x[n] = 0;
      }
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) p[2 * n + h] = pack<T>(x[4 * n + 2 * h], x[4 * n + 2 * h + 1]);
    };
    auto next_stage = [&] {
      if (++ks == KS) ks = 0, kp ^= 1;
    };
    // Tiles seen only by the other warpgroups. Lane 0 arrives for a warp once all of its lanes have
    // seen the phase (elsewhere products keep lanes together): a lane two phases behind would wait
    // for ever.
    auto pass = [&](int count) {
      for (int j = 0; j < count; ++j) {
        barrier_wait(k_full(ks), kp);
        barrier_wait(v_full(ks), kp);
        sync_warp();
        if (lane == 0) barrier_arrive(k_empty(ks)), barrier_arrive(v_empty(ks));
        next_stage();
      }
    };
    auto release_stored = [&] {  // the output of the item before has left shared memory
      if (store_stage >= 0 && thread == 0) bulk_wait_read<0>(), barrier_arrive(q_empty(store_stage));
      store_stage = -1;
    };

    barrier_wait(q_full(qs), qp);
    pass(begin - at.begin);
    if (begin < end) {
      barrier_wait(k_full(ks), kp);
      issue_scores();
      wgmma_wait<0>();
      pin(scores);
      if (lane == 0) barrier_arrive(k_empty(ks));
      softmax(begin);
      pack_probabilities(begin);
      release_stored();
      for (int j = begin + 1; j < end; ++j) {
        const int before = ks;
        const int before_parity = kp;
        next_stage();
        barrier_wait(k_full(ks), kp);
        issue_scores();
        barrier_wait(v_full(before), before_parity);
        issue_output(before, j > begin + 1);
        wgmma_wait<1>();
        pin(scores);
        if (lane == 0) barrier_arrive(k_empty(ks));
        softmax(j);
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) barrier_arrive(v_empty(before));
#pragma unroll
        for (int n = 0; n < D / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[4 * n + e] *= factor[e / 2];
        pack_probabilities(j);
      }
      barrier_wait(v_full(ks), kp);
      issue_output(ks, end - begin > 1);
      float inverse[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float all = sum[h] + shuffle_xor(sum[h], 1);
        all += shuffle_xor(all, 2);
        inverse[h] = (Tile::dropout ? s.dropout.keep_scale : 1.f) / all;
        int row = first_row + 16 * (warp % 4) + g + 8 * h;
        if (t == 0 && row < s.queries)
          a.lse[(int64_t(at.batch) * s.heads + at.head) * s.queries + row] = fmaf(largest[h], s.scale, logf(all));
      }
      wgmma_wait<0>();
      pin(o);
      if (lane == 0) barrier_arrive(v_empty(ks));
      next_stage();
      pass(at.end - end);
      // Through the place of this warpgroup's queries.
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        store_matrices(q_tile + uint32_t(k / 4 * Tile::queries * 128) + (matrix ^ uint32_t(k % 4 * 32)),
                       pack<T>(inverse[0] * o[8 * k], inverse[0] * o[8 * k + 1]),
                       pack<T>(inverse[1] * o[8 * k + 2], inverse[1] * o[8 * k + 3]),
                       pack<T>(inverse[0] * o[8 * k + 4], inverse[0] * o[8 * k + 5]),
                       pack<T>(inverse[1] * o[8 * k + 6], inverse[1] * o[8 * k + 7]));
      async_fence_shared();
      named_sync(1 + w, 128);
      if (thread == 0) {
#pragma unroll
        for (int d = 0; d < D; d += 64)
          tensor_store(&a.o, at.head * D + d, first_row, at.batch, q_tile + uint32_t(d / 64 * Tile::queries * 128));
        bulk_commit();
      }
    } else {  // no queries for this warpgroup
      release_stored();
      pass(at.end - end);
      named_sync(1 + w, 128);  // all have seen q_full before one of them hands the place on
    }
    store_stage = qs;
    if (++qs == QS) qs = 0, qp ^= 1;
  }
  if (thread == 0) bulk_wait<0>();
#endif
}

// --- host ---

template <class Tile>
struct ForwardPlan {
  ForwardSizes s;

  explicit ForwardPlan(const Sizes& sizes, int chunk_heads = 0) {
    static_cast<Sizes&>(s) = sizes;
    s.query_tiles = (s.queries + Tile::queries - 1) / Tile::queries;
    s.key_tiles = (s.tokens + Tile::keys - 1) / Tile::keys;
    int heads = s.batch * s.heads;
    // Keys and values of a chunk fit into half of the second-level cache.
    int64_t fit = (int64_t(24) << 20) * s.group() / (int64_t(s.tokens) * Tile::D * 4);
    if (chunk_heads <= 0) chunk_heads = int(fit < 16 ? 16 : fit < heads ? fit : heads);
    s.chunk = chunk_heads < heads ? chunk_heads : heads;
    s.items = heads * s.query_tiles;
  }
};

// q, kv (both qkv, or as in attention_rows), o, lse: ops/attention.cpp. Returns a cudaError_t.
template <class Tile>
int start_forward(const ForwardPlan<Tile>& plan, EncodeTiled encode, const void* q, const void* kv, void* o, float* lse,
                  int blocks, const LaunchOn& on) {
  using T = typename Tile::T;
  ForwardArgs a;
  a.s = plan.s, a.lse = lse;
  constexpr bool bf16 = std::is_same_v<T, bfloat16>;
  const Widths width(a.s, Tile::D);
  if (!rows_map(&a.q, encode, q, bf16, a.s.batch, a.s.queries, width.q) ||
      !rows_map(&a.kv, encode, kv, bf16, a.s.batch, a.s.tokens, width.kv) ||
      !rows_map(&a.o, encode, o, bf16, a.s.batch, a.s.queries, int64_t(a.s.heads) * Tile::D))
    return 1;
  unsigned taken = unsigned(blocks < a.s.items ? blocks : a.s.items);
#ifdef __CUDACC__
  return start_kernel(on, forward_kernel<Tile>, taken, Tile::threads, Tile::shared_bytes, a);
#else
  (void)on;
  emulated::run(taken, Tile::threads, Tile::shared_bytes, [&] { forward_kernel<Tile>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
