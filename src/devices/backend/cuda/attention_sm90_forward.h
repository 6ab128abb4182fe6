// attention for compute capability 9.0. A block goes over items of work: a tile of queries of one
// head. Warpgroup 0 loads by TMA; each of the others has 64 queries and goes over the keys in tiles
// of 128, from the last to the first: scores of a tile are computed while the probabilities of the
// tile before meet the values, and softmax runs alongside both. The first scores of an item are
// computed with the last output of the item before it.
#pragma once
#include "backend/cuda/attention_sm90.h"

namespace crest::cuda::sm90 {

struct ForwardSizes : Sizes {
  int query_tiles, key_tiles;
  int chunk;  // heads with adjacent items in the list, the longest first
  int items;
  int before;  // rows of the first tile of queries before the first query
};

struct ForwardArgs {
  CUtensorMap q, kv, o;
  ForwardSizes s;
  float* lse;
  uint32_t* counter;  // items taken; null: each block has a fixed list
};

// A tile of queries of a head and its visible tiles of keys [begin, end). tile is -1 behind the
// last item.
struct alignas(16) ForwardItem {
  int tile, batch, head, begin, end;
};
static_assert(sizeof(ForwardItem) == 32);

template <class T_, int D_, bool First_, bool Dropout_ = false>
struct ForwardTile {
  using T = T_;
  static constexpr int D = D_;
  static constexpr bool dropout = Dropout_;
  static constexpr bool first = First_;           // queries have a first key: documents, window
  static constexpr int groups = D <= 64 ? 3 : 2;  // computing warpgroups, 64 queries each
  static constexpr int threads = 128 * (groups + 1), queries = 64 * groups, keys = 128;
  static constexpr int few_registers = groups == 3 ? 32 : 40, many_registers = groups == 3 ? 160 : 232;
  static constexpr int kv_stages = D <= 64 ? 3 : 2, q_stages = 2;
  static constexpr int q_bytes = queries * D * 2, kv_bytes = keys * D * 2;
  static constexpr int q_at = 0, k_at = q_at + q_stages * q_bytes, v_at = k_at + kv_stages * kv_bytes;
  static constexpr int work_at = v_at + kv_stages * kv_bytes, barriers_at = work_at + q_stages * 32;
  static constexpr int shared_bytes = barriers_at + 8 * (2 * q_stages + 4 * kv_stages) + 1024;
  static_assert(D == 64 || D == 128);
  static_assert(shared_bytes <= max_shared_bytes);
};

template <class Tile>
__device__ inline ForwardItem forward_item(const ForwardSizes& s, int item) {
  int all = s.chunk * s.query_tiles, chunk = item / all, rest = item - chunk * all;
  int heads = min(s.chunk, s.batch * s.heads - chunk * s.chunk);
  int tile = rest / heads, head = chunk * s.chunk + rest - tile * heads;
  if (s.causal) tile = s.query_tiles - 1 - tile;  // the longest first
  ForwardItem at = {tile, head / s.heads, head % s.heads, 0, s.key_tiles};
  const int row = tile * Tile::queries - s.before;
  if (s.causal) at.end = min(s.token(min(row + Tile::queries, s.queries) - 1) / Tile::keys + 1, s.key_tiles);
  if constexpr (Tile::first) at.begin = first_key(s, at.batch, max(row, 0)) / Tile::keys;
  return at;
}

// Item number `round` of this block: there and back again, so no block always has the longest.
__device__ inline int forward_turn(int round, int block, int blocks) {
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

static __global__ void __launch_bounds__(32) zero_counter(uint32_t* counter) {
  wait_for_predecessors();
  if (threadIdx.x == 0) *counter = 0;
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) forward_kernel(const __grid_constant__ ForwardArgs a) {
#if CREST_HOPPER_CODE
  using T = typename Tile::T;
  constexpr int D = Tile::D, QS = Tile::q_stages, KS = Tile::kv_stages, NT = Tile::keys / 8, G = Tile::groups;
  const ForwardSizes& s = a.s;
  unsigned char* const raw = dynamic_shared();
  const uint32_t raw_address = shared_address(raw), base = (raw_address + 1023) & ~1023u;
  ForwardItem* const work = reinterpret_cast<ForwardItem*>(raw + (base - raw_address) + Tile::work_at);
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
    int qs = 0, qp = 1, ks = 0, kp = 1, round = 0;
    auto take_item = [&] { return a.counter ? int(atomicAdd(a.counter, 1u)) : forward_turn(round++, block, blocks); };
    for (int item = take_item(), next = 0;; item = next) {
      barrier_wait(q_empty(qs), qp);
      if (item >= s.items) {
        work[qs].tile = -1;
        barrier_arrive(q_full(qs));
        break;
      }
      ForwardItem at = forward_item<Tile>(s, item);
      auto load = [&](uint32_t to, const CUtensorMap* from, int rows, int column, int row, uint32_t full) {
#pragma unroll
        for (int d = 0; d < D; d += 64)
          for (int r = 0; r < rows; r += 64)
            tensor_load(to + uint32_t(d * rows * 2 + r * 128), from, column + d, row + r, at.batch, full);
      };
      work[qs] = at;
      barrier_arrive_expect(q_full(qs), Tile::q_bytes);
      load(base + Tile::q_at + uint32_t(qs * Tile::q_bytes), &a.q, Tile::queries, at.head * D,
           at.tile * Tile::queries - s.before, q_full(qs));
      if (++qs == QS) qs = 0, qp ^= 1;
      next = take_item();  // early: the answer takes as long as a tile
      int key_column = (s.key_head + at.head / s.group()) * D;
      for (int j = at.end - 1; j >= at.begin; --j) {
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
  // A tile of keys `j` of this warpgroup, and its item: row and token of its first query, its keys
  // in tiles, the keys of all warpgroups.
  struct Place {
    int row, token, batch, head, begin, end, j, item_begin, item_end, first[2];
    uint32_t q_tile;
  } at = {};
  auto next_stage = [&] {
    if (++ks == KS) ks = 0, kp ^= 1;
  };
  auto next_queries = [&] {
    if (++qs == QS) qs = 0, qp ^= 1;
  };
  auto my_turn = [&] { named_sync(1 + G + w, 256); };
  auto end_turn = [&] { named_arrive(1 + G + (w + 1) % G, 256); };
  // Tiles seen only by the other warpgroups. Lane 0 arrives for a warp once all of its lanes have
  // seen the phase (elsewhere products keep lanes together): a lane two phases behind would wait
  // for ever.
  auto pass = [&](int count) {
    for (int i = 0; i < count; ++i) {
      barrier_wait(k_full(ks), kp);
      my_turn();
      end_turn();
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
  // Reads the item at stage qs; false behind the last one.
  auto take = [&] {
    barrier_wait(q_full(qs), qp);
    ForwardItem item = work[qs];
    item.tile = of_lane_0(item.tile), item.batch = of_lane_0(item.batch), item.head = of_lane_0(item.head),
    item.begin = of_lane_0(item.begin), item.end = of_lane_0(item.end);
    if (item.tile < 0) return false;
    at.batch = item.batch, at.head = item.head, at.item_end = item.end;
    at.item_begin = Tile::first ? item.begin : 0;
    at.row = item.tile * Tile::queries + 64 * w - s.before, at.token = s.token(at.row);
    at.begin = Tile::first ? item.begin : 0, at.end = item.end;
    if (s.causal) at.end = min(item.end, (at.token + 63) / Tile::keys + 1);
    if (at.row < 0 || at.row >= s.queries) {
      at.end = at.begin;
    } else if constexpr (Tile::first) {
      at.begin = max(at.begin, first_key(s, at.batch, at.row) / Tile::keys);
      for (int h = 0; h < 2; ++h) at.first[h] = first_key(s, at.batch, at.row + 16 * (warp % 4) + g + 8 * h);
    }
    at.q_tile = base + Tile::q_at + uint32_t(qs * Tile::q_bytes + w * 64 * 128);
    at.j = at.end - 1;
    return true;
  };
  // From a taken item on to the first with work for this warpgroup, and to its first tile of keys.
  auto find_work = [&](bool taken) {
    while (taken && at.begin == at.end) {
      release_stored();
      pass(at.item_end - at.item_begin);
      named_sync(1 + w, 128);  // all have seen q_full before one of them hands the place on
      if (thread == 0) barrier_arrive(q_empty(qs));
      next_queries();
      taken = take();
    }
    if (taken) pass(at.item_end - at.end);
    return taken;
  };
  float scores[Tile::keys / 2], o[D / 2], largest[2] = {}, sum[2] = {}, factor[2];
  uint32_t p[Tile::keys / 4];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) define(o[i]);
  auto issue_scores = [&] {
    uint64_t rows = operand(at.q_tile), columns = operand(base + Tile::k_at + uint32_t(ks * Tile::kv_bytes));
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
  // Of row h and half the keys: the largest score, and scores to exp2(s scale log2(e) - shift).
  // Returns the sum.
  auto maximum = [&](int h, int from) {
    float top[2] = {scores[4 * from + 2 * h], scores[4 * from + 2 * h + 1]};
#pragma unroll
    for (int n = from + 1; n < from + NT / 2; ++n)
      top[0] = fmaxf(top[0], scores[4 * n + 2 * h]), top[1] = fmaxf(top[1], scores[4 * n + 2 * h + 1]);
    return fmaxf(top[0], top[1]);
  };
  auto exponentials = [&](int h, int from, float shift) {
    float total[2] = {0, 0};
#pragma unroll
    for (int n = from; n < from + NT / 2; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = scores[4 * n + 2 * h + e];
        x = exp2_fast(fmaf(x, scale_log2, -shift));
        total[e] += x;
      }
    return total[0] + total[1];
  };
  auto over_row = [&](float top) {
    top = fmaxf(top, shuffle_xor(top, 1));
    return fmaxf(top, shuffle_xor(top, 2));
  };
  auto shift_of = [&](int h) { return Tile::first && largest[h] == -INFINITY ? 0.f : largest[h] * scale_log2; };
  auto mask_first_keys = [&] {
    if constexpr (Tile::first) {
      // Rows' first keys grow: the last row has the largest.
      if (at.j * Tile::keys < first_key(s, at.batch, at.row + 63)) {
        const int key = at.j * Tile::keys + 2 * t;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (key + 8 * n + e % 2 < at.first[e / 2]) scores[4 * n + e] = -INFINITY;
      }
    }
  };
  // Probabilities of an item's first tile, which has the last keys: the only one with the diagonal.
  // Returns whether they end behind the first half of the keys.
  auto first_softmax = [&] {
    const int key = at.j * Tile::keys;
    bool half = false;
    if (s.causal) {  // the diagonal is in one half of the keys
      const int row = 16 * (warp % 4) + g - 2 * t;
      auto mask = [&](int from) {
#pragma unroll
        for (int n = 0; n < NT / 2; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (row < 8 * n + e % 2 - e / 2 * 8) scores[4 * (n + from) + e] = -INFINITY;
      };
      half = key == at.token;
      if (half)
        mask(0);
      else if (key + 64 == at.token)
        mask(NT / 2);
    } else if (key + Tile::keys > s.tokens) {
      const int end = s.tokens - key - 2 * t;
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (8 * n + e % 2 >= end) scores[4 * n + e] = -INFINITY;
    }
    mask_first_keys();
#pragma unroll
    for (int h = 0; h < 2; ++h) largest[h] = maximum(h, 0);
    if (!half) {
#pragma unroll
      for (int h = 0; h < 2; ++h) largest[h] = fmaxf(largest[h], maximum(h, NT / 2));
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) largest[h] = over_row(largest[h]), sum[h] = exponentials(h, 0, shift_of(h));
    if (!half) {
#pragma unroll
      for (int h = 0; h < 2; ++h) sum[h] += exponentials(h, NT / 2, shift_of(h));
    }
    return half;
  };
  // Of another tile: `factor` converts o so far to the new maximum.
  auto next_softmax = [&] {
    mask_first_keys();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = largest[h];
      largest[h] = fmaxf(before, over_row(fmaxf(maximum(h, 0), maximum(h, NT / 2))));
      factor[h] = exp2_fast(fmaf(before, scale_log2, -shift_of(h)));
      sum[h] = fmaf(sum[h], factor[h], exponentials(h, 0, shift_of(h)) + exponentials(h, NT / 2, shift_of(h)));
    }
  };
  auto pack_probabilities = [&](bool half) {
    if constexpr (Tile::dropout) {
      uint32_t kept[NT / 8];
      kept_by_queries<NT>(kept, DropoutHead(s.dropout, at.batch, at.head, s.tokens), at.token + 16 * (warp % 4),
                          at.j * Tile::keys);
#pragma unroll
      for (int n = 0; n < Tile::keys / 2; ++n)
        if (!(kept[n / 32] >> n % 32 & 1)) scores[n] = 0;
    }
#pragma unroll
    for (int n = 0; n < Tile::keys / 8; ++n) p[n] = pack<T>(scores[2 * n], scores[2 * n + 1]);
    if (half) {
#pragma unroll
      for (int n = Tile::keys / 8; n < Tile::keys / 4; ++n) p[n] = 0;
    } else {
#pragma unroll
      for (int n = Tile::keys / 8; n < Tile::keys / 4; ++n) p[n] = pack<T>(scores[2 * n], scores[2 * n + 1]);
    }
  };
  if (w == G - 1) end_turn();
  // Items; before the first, a step without an item behind it.
  bool ahead = false, taken = take();
  int rest = 0;
  for (bool start = true;; start = false) {
    // The last tile of an item, and the scores of the next item's first.
    const Place done = at;
    const int stage = ks, parity = kp, done_qs = qs;
    if (!start) {
      rest = at.begin - at.item_begin;
      bool known = rest <= KS - 2;  // all tiles up to the next item's first fit into shared memory
      if (known) next_queries(), taken = take();
      ahead = known && taken && at.begin < at.end && rest + at.item_end - at.end <= KS - 2;
      if (ahead) {
        next_stage(), pass(rest + at.item_end - at.end);
        barrier_wait(k_full(ks), kp);
      }
      if (ahead) my_turn();
      issue_scores();  // if not ahead, on leftover shared memory
      barrier_wait(v_full(stage), parity);
      issue_output(stage, done.j + 1 < done.end);
      if (ahead) end_turn();
      float inverse[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float all = sum[h] + shuffle_xor(sum[h], 1);
        all += shuffle_xor(all, 2);
        inverse[h] = (Tile::dropout ? s.dropout.keep_scale : 1.f) / all;
        int row = done.row + 16 * (warp % 4) + g + 8 * h;
        if (t == 0 && row < s.queries)
          a.lse[(int64_t(done.batch) * s.heads + done.head) * s.queries + row] = fmaf(largest[h], s.scale, logf(all));
      }
      wgmma_wait<0>();
      pin(scores), pin(o);
      if (lane == 0) barrier_arrive(v_empty(stage));
        // Through the place of this warpgroup's queries.
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        store_matrices(done.q_tile + uint32_t(k / 4 * Tile::queries * 128) + (matrix ^ uint32_t(k % 4 * 32)),
                       pack<T>(inverse[0] * o[8 * k], inverse[0] * o[8 * k + 1]),
                       pack<T>(inverse[1] * o[8 * k + 2], inverse[1] * o[8 * k + 3]),
                       pack<T>(inverse[0] * o[8 * k + 4], inverse[0] * o[8 * k + 5]),
                       pack<T>(inverse[1] * o[8 * k + 6], inverse[1] * o[8 * k + 7]));
      async_fence_shared();
      named_sync(1 + w, 128);
      if (thread == 0) {
#pragma unroll
        for (int d = 0; d < D; d += 64)
          tensor_store(&a.o, done.head * D + d, done.row, done.batch,
                       done.q_tile + uint32_t(d / 64 * Tile::queries * 128));
        bulk_commit();
      }
      store_stage = done_qs;
      if (!ahead) {
        next_stage();
        pass(rest);
        if (!known) next_queries(), taken = take();
      }
    }
    if (!ahead) {
      if (!find_work(taken)) break;
      barrier_wait(k_full(ks), kp);
      my_turn();
      issue_scores();
      wgmma_wait<0>();
      pin(scores);
      end_turn();
    }
    if (lane == 0) barrier_arrive(k_empty(ks));
    pack_probabilities(first_softmax());
    release_stored();
    // Its other tiles.
    while (at.j > at.begin) {
      const int before = ks, before_parity = kp;
      const bool fresh = at.j + 1 == at.end;
      next_stage();
      barrier_wait(k_full(ks), kp);
      my_turn();
      issue_scores();
      barrier_wait(v_full(before), before_parity);
      issue_output(before, !fresh);
      end_turn();
      --at.j;
      wgmma_wait<1>();
      pin(scores);
      if (lane == 0) barrier_arrive(k_empty(ks));
      next_softmax();
      wgmma_wait<0>();
      pin(o);
      if (lane == 0) barrier_arrive(v_empty(before));
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[4 * n + e] *= factor[e / 2];
      pack_probabilities(false);
    }
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
    // All tiles begin at a multiple of 64.
    s.before = s.query_tiles * Tile::queries - (s.queries + 63) / 64 * 64;
    s.key_tiles = (s.tokens + Tile::keys - 1) / Tile::keys;
    int heads = s.batch * s.heads;
    // Keys and values of a chunk fit into half of the second-level cache.
    int64_t fit = (int64_t(24) << 20) * s.group() / (int64_t(s.tokens) * Tile::D * 4);
    if (chunk_heads <= 0) chunk_heads = int(fit < 16 ? 16 : fit < heads ? fit : heads);
    s.chunk = chunk_heads < heads ? chunk_heads : heads;
    const int chunks = (heads + s.chunk - 1) / s.chunk;  // of the same size
    s.chunk = (heads + chunks - 1) / chunks;
    s.items = heads * s.query_tiles;
  }
};

// q, kv (both qkv, or as in attention_rows), o, lse: ops/attention.cpp. Returns a cudaError_t.
template <class Tile>
int start_forward(const ForwardPlan<Tile>& plan, EncodeTiled encode, const void* q, const void* kv, void* o, float* lse,
                  uint32_t* counter, int blocks, const LaunchOn& on) {
  using T = typename Tile::T;
  ForwardArgs a;
  a.s = plan.s, a.lse = lse;
  // Zeroing the counter takes as long as a few items (H200, 4 x 1024 tokens of 12 heads: 0.029 ms
  // with a counter, 0.023 without).
  a.counter = a.s.items > 4 * blocks ? counter : nullptr;
  constexpr bool bf16 = std::is_same_v<T, bfloat16>;
  const Widths width(a.s, Tile::D);
  if (!rows_map(&a.q, encode, q, bf16, a.s.batch, a.s.queries, width.q) ||
      !rows_map(&a.kv, encode, kv, bf16, a.s.batch, a.s.tokens, width.kv) ||
      !rows_map(&a.o, encode, o, bf16, a.s.batch, a.s.queries, int64_t(a.s.heads) * Tile::D))
    return 1;
  unsigned taken = unsigned(blocks < a.s.items ? blocks : a.s.items);
#ifdef __CUDACC__
  if (a.counter)
    if (cudaError_t code = start_kernel(on, zero_counter, 1, 32, 0, counter); code != cudaSuccess) return code;
  return start_kernel(on, forward_kernel<Tile>, taken, Tile::threads, Tile::shared_bytes, a);
#else
  (void)on;
  if (a.counter) emulator::run(dim3(1), dim3(32), 0, [&] { zero_counter(counter); });
  emulated::run(taken, Tile::threads, Tile::shared_bytes, [&] { forward_kernel<Tile>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
