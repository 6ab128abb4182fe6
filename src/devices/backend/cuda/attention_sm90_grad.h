// attention_grad for compute capability 9.0, in one pass, bitwise identical every time.
//
// A block goes over items of work: a tile of keys of one key head, with all queries that see it.
// Warpgroup 0 moves data: warp 0 loads tiles by TMA, warps 1 and 2 pass on the dQ of the two other
// warpgroups. These two have 64 keys each. Scores are transposed: rows are keys, and P and dS go
// from registers straight into dV and dK:
//   S^T = K Q^T, dP^T = V dO^T, P = exp2(S - lse), dV += P^T dO, dS = P (dP - delta), dK += dS^T Q
// and dS also goes through shared memory, where each warpgroup takes one half of dQ = dS K over all
// 128 keys.
//
// dQ of a tile of queries is a sum over items. It stays in fp32 in a ring of slots in the
// second-level cache, one slot for each head in flight. A counter of each tile gives the order:
// items add one after the other, by keys; the first one stores instead of adding, the last one
// moves the sum from the slot to dQ. So no memory has to be zero, no pass over dQ follows, and the
// order of additions is always the same. An item waits only for earlier items of the list, and
// blocks take items in list order: no block waits for an item not begun.
//
// An item goes from its last queries to its first, at each tile through the query heads of its key
// head. So concurrent items of a head work on the same tile, each one addition behind the item
// before it. In the opposite order an item could start only one step after the item before it. With
// documents (items of few steps) all items of a head would then form one chain.
#pragma once
#include "backend/cuda/attention_sm90.h"

namespace crest::cuda::sm90 {

struct GradSizes : Sizes {
  int query_tiles, key_tiles;
  int chunk;  // key heads with adjacent items in the list, the longest first
  int ring;   // query heads with a slot, a multiple of chunk times group
  int items;
};

struct GradArgs {
  CUtensorMap q, kv, d_o, dq, dkv;
  GradSizes s;
  const float* stats;
  float* slots;
  uint32_t* counters;  // [0]: items taken; then [ring, query_tiles, 2]
};

template <class T_, int D_, bool First_, bool Dropout_ = false>
struct GradTile {
  using T = T_;
  static constexpr int D = D_;
  static constexpr bool dropout = Dropout_;
  static constexpr bool first = First_;  // queries have a first key: documents, window
  static constexpr int keys = 128, queries = D <= 64 ? 128 : 64;
  // Registers of a loading and of a computing thread: 128 and 256 of them take 65536 - 1024, the
  // registers of a block in a launch with 384 threads.
  static constexpr int few_registers = D > 64 ? 24 : 40, many_registers = 252 - few_registers / 2;
  static_assert(128 * few_registers + 256 * many_registers == 384 * 168);
  static constexpr int q_stages = 3, do_stages = D <= 64 ? 2 : 3, kv_stages = D <= 64 ? 2 : 1;
  static constexpr int stat_rows = first ? 3 : 2;  // lse log2(e), dO . O, first key
  static constexpr int stat_bytes = stat_rows * queries * 4;
  static constexpr int kv_bytes = keys * D * 2, q_bytes = queries * D * 2, ds_bytes = keys * queries * 2;
  static constexpr int half_bytes = queries * D * 2;  // of dQ: a warpgroup's part
  static constexpr int half_floats = half_bytes / 4;
  static constexpr int k_at = 0, v_at = k_at + kv_stages * kv_bytes, q_at = v_at + kv_stages * kv_bytes;
  static constexpr int do_at = q_at + q_stages * q_bytes, ds_at = do_at + do_stages * q_bytes, dq_at = ds_at + ds_bytes;
  static constexpr int stats_at = dq_at + 2 * half_bytes, work_at = stats_at + q_stages * stat_bytes;
  static constexpr int barriers_at = work_at + kv_stages * 32;
  static constexpr int barriers = 2 * kv_stages + 2 * q_stages + 2 * do_stages + 6;
  static constexpr int shared_bytes = barriers_at + 8 * barriers + 1024;
  static_assert(D == 64 || D == 128);
  static_assert(shared_bytes <= max_shared_bytes);
};

// An item: the queries [begin, end) in tiles with a view of a tile of keys. key_tile is -1 behind
// the last item.
struct alignas(16) GradItem {
  int key_tile, batch, kv_head, begin, end;
};
static_assert(sizeof(GradItem) == 32);

template <class Tile>
__device__ inline int first_of_tile(const GradArgs& a, int batch, int tile) {
  if constexpr (!Tile::first) return 0;
  int64_t at = (int64_t(batch) * a.s.heads * a.s.query_tiles + tile) * Tile::stat_rows + 2;
  return __float_as_int(__ldg(a.stats + at * Tile::queries));
}

// The first and the last tile of keys seen by a tile of queries. All of its queries are in one
// chunk.
struct KeyTiles {
  int first, last;
};
template <class Tile>
__device__ inline KeyTiles key_tiles_of(const GradArgs& a, int batch, int tile) {
  int last = a.s.key_tiles - 1;
  if (a.s.causal) last = min((a.s.token(tile * Tile::queries) + Tile::queries - 1) / Tile::keys, last);
  return {first_of_tile<Tile>(a, batch, tile) / Tile::keys, last};
}

// The first tile of queries with a view of a tile of keys, or the number of all if none sees it.
template <class Tile>
__device__ inline int first_query_tile(const GradSizes& s, int key_tile) {
  if (!s.causal) return 0;
  const int key = key_tile * Tile::keys, tile = max(key - s.shift[0], 0) / Tile::queries;
  if (tile * Tile::queries < s.chunk_queries) return tile;
  return min(max(key - s.shift[1], s.chunk_queries) / Tile::queries, s.query_tiles);
}

template <class Tile>
__device__ inline GradItem place_of_item(const GradArgs& a, int item) {
  const GradSizes& s = a.s;
  int all = s.chunk * s.key_tiles, chunk = item / all, rest = item - chunk * all;
  int heads = min(s.chunk, s.batch * s.kv_heads - chunk * s.chunk);
  int tile = rest / heads, head = chunk * s.chunk + rest - tile * heads;
  return {tile, head / s.kv_heads, head % s.kv_heads, first_query_tile<Tile>(s, tile), s.query_tiles};
}

// Whether a query sees a key of an item.
template <class Tile>
__device__ inline bool is_seen(const GradArgs& a, const GradItem& at) {
  return at.begin < at.end && first_of_tile<Tile>(a, at.batch, at.begin) < (at.key_tile + 1) * Tile::keys;
}

// Dot products of o and its gradient, one row of a head a group of D / 8 lanes; zeroes the
// counters, and `zeros` words for gradients of keys that no query sees.
template <class Tile>
__global__ void __launch_bounds__(256)
    grad_statistics(const typename Tile::T* d_o, const typename Tile::T* o, const float* lse, float* stats,
                    uint32_t* counters, int counter_count, uint32_t* zeros, int64_t zero_count,
                    const __grid_constant__ GradSizes s) {
  wait_for_predecessors();
  using T = typename Tile::T;
  constexpr int lanes = Tile::D / 8, rows = 256 / lanes;
  int head = int(blockIdx.y), batch = int(blockIdx.z), lane = int(threadIdx.x) % lanes;
  int token = int(blockIdx.x) * rows + int(threadIdx.x) / lanes;
  float sum = 0;
  if (token < s.queries) {
    int64_t at = ((int64_t(batch) * s.queries + token) * s.heads + head) * Tile::D + 8 * lane;
    Vec<T, 8> x = load_vec<8>(d_o + at), y = load_vec<8>(o + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(widen(x.x[i]), widen(y.x[i]), sum);
  }
#pragma unroll
  for (int i = 1; i < lanes; i *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
  if (lane == 0 && token < s.query_tiles * Tile::queries) {
    int64_t head_row = int64_t(batch) * s.heads + head, tile = head_row * s.query_tiles + token / Tile::queries;
    float* to = stats + tile * Tile::stat_rows * Tile::queries + token % Tile::queries;
    // Beyond the end P is 0.
    to[0] = token < s.queries ? lse[head_row * s.queries + token] * log2_e : INFINITY;
    to[Tile::queries] = sum;
    if constexpr (Tile::first) to[2 * Tile::queries] = __int_as_float(first_key(s, batch, token));
  }
  int64_t block = (int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  for (int64_t i = block * 256 + threadIdx.x; i < counter_count; i += int64_t(gridDim.x) * gridDim.y * gridDim.z * 256)
    counters[i] = 0;
  for (int64_t i = block * 256 + threadIdx.x; i < zero_count; i += int64_t(gridDim.x) * gridDim.y * gridDim.z * 256)
    zeros[i] = 0;
}

template <class Tile>
__global__ void __launch_bounds__(384, 1) grad_kernel(const __grid_constant__ GradArgs a) {
#if CREST_HOPPER_CODE
  using T = typename Tile::T;
  constexpr int D = Tile::D, M = Tile::queries, KS = Tile::kv_stages, NT = M / 8;
  const GradSizes& s = a.s;
  unsigned char* const raw = dynamic_shared();
  const uint32_t raw_address = shared_address(raw), base = (raw_address + 1023) & ~1023u;
  unsigned char* const memory = raw + (base - raw_address);
  auto barrier = [&](int i) { return base + uint32_t(Tile::barriers_at + 8 * i); };
  auto kv_full = [&](int i) { return barrier(i); };
  auto kv_empty = [&](int i) { return barrier(KS + i); };
  constexpr int QS = Tile::q_stages, OS = Tile::do_stages;
  auto q_full = [&](int i) { return barrier(2 * KS + i); };
  auto q_empty = [&](int i) { return barrier(2 * KS + QS + i); };
  auto do_full = [&](int i) { return barrier(2 * KS + 2 * QS + i); };
  auto do_empty = [&](int i) { return barrier(2 * KS + 2 * QS + OS + i); };
  auto dq_full = [&](int i) { return barrier(2 * KS + 2 * QS + 2 * OS + i); };
  auto dq_empty = [&](int i) { return barrier(2 * KS + 2 * QS + 2 * OS + 2 + i); };
  auto prior_full = [&](int i) { return barrier(2 * KS + 2 * QS + 2 * OS + 4 + i); };
  GradItem* const work = reinterpret_cast<GradItem*>(memory + Tile::work_at);

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < KS; ++i) barrier_init(kv_full(i), 1), barrier_init(kv_empty(i), 4);
    for (int i = 0; i < QS; ++i) barrier_init(q_full(i), 1), barrier_init(q_empty(i), 8);
    for (int i = 0; i < OS; ++i) barrier_init(do_full(i), 1), barrier_init(do_empty(i), 8);
    for (int i = 0; i < 2; ++i)
      barrier_init(dq_full(i), 4), barrier_init(dq_empty(i), 1), barrier_init(prior_full(i), 1);
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  if (warp < 4) {
    registers_give<Tile::few_registers>();
    if (lane != 0) return;
    if (warp == 0) {  // loads
      int ks = 0, kp = 1, qs = 0, qp = 1, os = 0, op = 1;
      for (;;) {
        int item = int(atomicAdd(a.counters, 1u));
        if (item < s.items && !s.sees_all() && !is_seen<Tile>(a, place_of_item<Tile>(a, item))) continue;
        barrier_wait(kv_empty(ks), kp);
        if (item >= s.items) {
          work[ks].key_tile = -1;
          barrier_arrive(kv_full(ks));
          break;
        }
        GradItem at = place_of_item<Tile>(a, item);
        if constexpr (Tile::first) {
          int last_key = at.key_tile * Tile::keys + Tile::keys - 1, low = at.begin, high = at.end;
          while (high - low > 1) {  // tile `low` sees the keys
            int middle = (low + high) / 2;
            if (first_of_tile<Tile>(a, at.batch, middle) <= last_key)
              low = middle;
            else
              high = middle;
          }
          at.end = high;
        }
        work[ks] = at;
        barrier_arrive_expect(kv_full(ks), 2 * Tile::kv_bytes);
        int key_column = (s.key_head + at.kv_head) * D, row = at.key_tile * Tile::keys;
#pragma unroll
        for (int d = 0; d < D; d += 64)
#pragma unroll
          for (int r = 0; r < Tile::keys; r += 64) {
            uint32_t to = base + ks * Tile::kv_bytes + uint32_t(d * Tile::keys * 2 + r * 128);
            tensor_load(to + Tile::k_at, &a.kv, key_column + d, row + r, at.batch, kv_full(ks));
            tensor_load(to + Tile::v_at, &a.kv, key_column + s.kv_heads * D + d, row + r, at.batch, kv_full(ks));
          }
        for (int i = at.end - 1; i >= at.begin; --i) {
          for (int head = at.kv_head * s.group(); head < (at.kv_head + 1) * s.group(); ++head) {
            barrier_wait(q_empty(qs), qp);
            barrier_arrive_expect(q_full(qs), Tile::q_bytes + Tile::stat_bytes);
#pragma unroll
            for (int d = 0; d < D; d += 64)
#pragma unroll
              for (int r = 0; r < M; r += 64)
                tensor_load(base + Tile::q_at + qs * Tile::q_bytes + uint32_t(d * M * 2 + r * 128), &a.q, head * D + d,
                            i * M + r, at.batch, q_full(qs));
            int64_t tile = (int64_t(at.batch) * s.heads + head) * s.query_tiles + i;
            bulk_load(base + Tile::stats_at + qs * Tile::stat_bytes, a.stats + tile * Tile::stat_rows * M,
                      Tile::stat_bytes, q_full(qs));
            if (++qs == QS) qs = 0, qp ^= 1;
            barrier_wait(do_empty(os), op);
            barrier_arrive_expect(do_full(os), Tile::q_bytes);
#pragma unroll
            for (int d = 0; d < D; d += 64)
#pragma unroll
              for (int r = 0; r < M; r += 64)
                tensor_load(base + Tile::do_at + os * Tile::q_bytes + uint32_t(d * M * 2 + r * 128), &a.d_o,
                            head * D + d, i * M + r, at.batch, do_full(os));
            if (++os == OS) os = 0, op ^= 1;
          }
        }
        if (++ks == KS) ks = 0, kp ^= 1;
      }
    } else if (warp <= 2) {  // passes on dQ of one warpgroup
      const int w = warp - 1;
      const uint32_t half = base + uint32_t(Tile::dq_at + w * Tile::half_bytes);
      int ks = 0, kp = 0, dp = 0;
      for (;;) {
        barrier_wait(kv_full(ks), kp);
        const GradItem at = work[ks];
        if (at.key_tile < 0) break;
        barrier_arrive(kv_empty(ks));
        for (int i = at.end - 1; i >= at.begin; --i) {
          const KeyTiles seen = key_tiles_of<Tile>(a, at.batch, i);
          const bool is_first = at.key_tile == seen.first, is_last = at.key_tile == seen.last;
          for (int head = at.kv_head * s.group(); head < (at.kv_head + 1) * s.group(); ++head) {
            int place = at.batch * s.heads + head, slot = place % s.ring, before = place / s.ring;
            int64_t index = (int64_t(slot) * s.query_tiles + i) * 2 + w;
            uint32_t* counter = a.counters + 1 + index;
            float* sum = a.slots + index * Tile::half_floats;
            uint32_t turn = uint32_t(before * (s.key_tiles + 1) + at.key_tile - seen.first);
            if (turn)
              while (load_acquire(counter) != turn) {
              }
            async_fence();
            if (is_last && !is_first) {
              barrier_arrive_expect(prior_full(w), Tile::half_bytes);
              bulk_load(half, sum, Tile::half_bytes, prior_full(w));
            }
            barrier_wait(dq_full(w), dp);
            dp ^= 1;
            if (is_last) {
              int column = head * D + (D == 64 ? 0 : 64 * w), row = i * M + (D == 64 ? 64 * w : 0);
              tensor_store(&a.dq, column, row, at.batch, half);
            } else if (is_first) {
              bulk_store(sum, half, Tile::half_bytes);
            } else {
              bulk_add(sum, half, Tile::half_bytes);
            }
            bulk_commit();
            bulk_wait_read<0>();
            barrier_arrive(dq_empty(w));
            if (!is_last) bulk_wait<0>();
            async_fence();
            store_release(counter, is_last ? uint32_t((before + 1) * (s.key_tiles + 1)) : turn + 1);
          }
        }
        if (++ks == KS) ks = 0, kp ^= 1;
      }
      bulk_wait<0>();
    }
    return;
  }

  registers_take<Tile::many_registers>();
  const int w = warp / 4 - 1, g = lane / 4, t = lane % 4, thread = thread_index() % 128;
  const uint32_t half = base + uint32_t(Tile::dq_at + w * Tile::half_bytes);
  // Where this lane's rows of matrices lie (store_matrices): of 16 rows of this warp, 16 columns;
  // columns 16 k of them are reached by an exclusive or with 32 k.
  const int matrix_row = 16 * (warp % 4) + lane % 16;
  const uint32_t matrix = swizzled(matrix_row, lane / 16);
  const uint32_t ds_matrix = base + Tile::ds_at + uint32_t(w * 64 * 128) + matrix;

  auto issue_scores = [&](float(&x)[M / 2], uint32_t keys, uint32_t queries) {
    uint64_t rows = operand(keys + uint32_t(w * 64 * 128)), columns = operand(queries);
    wgmma_fence();
    wgmma<T, M, false, false, true>(x, rows, columns, 0);
#pragma unroll
    for (int k = 1; k < D / 16; ++k)
      wgmma<T, M, false, false>(x, rows + uint64_t((k / 4 * Tile::keys * 128 + k % 4 * 32) >> 4),
                                columns + uint64_t((k / 4 * M * 128 + k % 4 * 32) >> 4), 1);
    wgmma_commit();
  };
  auto issue_sum = [&](float(&x)[D / 2], const uint32_t(&rows)[M / 4], uint32_t tile, bool accumulate) {
    uint64_t columns = operand(tile, D > 64 ? M * 128 : 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < M / 16; ++k)
      wgmma<T, D, true>(x, rows[4 * k], rows[4 * k + 1], rows[4 * k + 2], rows[4 * k + 3],
                        columns + uint64_t(k * 2048 >> 4), k > 0 || accumulate);
    wgmma_commit();
  };

  float dk[D / 2], dv[D / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) define(dk[i]), define(dv[i]);
  const float scale_log2 = s.scale * log2_e;
  int ks = 0, kp = 0, qs = 0, qp = 0, os = 0, op = 0, parity = 0, prior_parity = 0, store_stage = -1;
  barrier_wait(kv_full(0), 0);
  // The item of a step, its tile of queries and its head of the group.
  int key_tile = work[0].key_tile, begin = work[0].begin, i = work[0].end - 1, head = 0;
  if (key_tile < 0) return;
  bool fresh = true;  // the first step of an item
  uint32_t keys = base + Tile::k_at;
  float scores[M / 2];
  auto scores_of_first_step = [&] {
    barrier_wait(q_full(qs), qp);
    issue_scores(scores, keys, base + Tile::q_at + uint32_t(qs * Tile::q_bytes));
    wgmma_wait<0>();
    pin(scores);
  };
  scores_of_first_step();
  for (;;) {
    const uint32_t q_tile = base + Tile::q_at + uint32_t(qs * Tile::q_bytes);
    const uint32_t do_tile = base + Tile::do_at + uint32_t(os * Tile::q_bytes);
    const unsigned char* stats = memory + Tile::stats_at + qs * Tile::stat_bytes;
    const int first_key_row = key_tile * Tile::keys + 64 * w;  // of this warpgroup
    float dp[M / 2];
    // dK of the step before: its operands leave registers to dP.
    auto issue_dp = [&] {
      wgmma_wait<0>();
      if (!fresh && lane == 0) barrier_arrive(q_empty(qs ? qs - 1 : QS - 1));
      barrier_wait(do_full(os), op);
      issue_scores(dp, keys + uint32_t(Tile::v_at), do_tile);
    };

    const int key = first_key_row + 16 * (warp % 4) + g, first_token = s.token(i * M), query = first_token + 2 * t;
    float x[M / 2];
#pragma unroll
    for (int n = 0; n < M / 2; ++n) x[n] = scores[n];
    if (s.causal ? first_token < first_key_row + 63 : s.tokens < key_tile * Tile::keys + Tile::keys) {
      const int end_key = s.tokens;
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          int k = key + e / 2 * 8, q = query + 8 * n + e % 2;
          if (s.causal ? k > q : k >= end_key) x[4 * n + e] = -INFINITY;
        }
    }
    if constexpr (Tile::first) {
      const int* firsts = reinterpret_cast<const int*>(stats) + 2 * M;
      if (firsts[M - 1] > first_key_row) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          int2 first = reinterpret_cast<const int2*>(firsts)[4 * n + t];
          if (key < first.x) x[4 * n] = -INFINITY;
          if (key < first.y) x[4 * n + 1] = -INFINITY;
          if (key + 8 < first.x) x[4 * n + 2] = -INFINITY;
          if (key + 8 < first.y) x[4 * n + 3] = -INFINITY;
        }
      }
    }
    uint32_t p[M / 4], ds[M / 4];
    uint32_t dropped[Tile::dropout ? M / 4 : 1], kept[Tile::dropout ? M / 64 : 1];  // P with dropout; the kept part
    if constexpr (Tile::dropout) {
      const DropoutHead rule(s.dropout, work[ks].batch, work[ks].kv_head * s.group() + head, s.tokens);
      kept_by_keys<NT>(kept, rule, key - g, first_token);
    }
    auto exponentials = [&](int from, int to) {
#pragma unroll
      for (int n = from; n < to; ++n) {
        float2 lse = reinterpret_cast<const float2*>(stats)[4 * n + t];
#pragma unroll
        for (int e = 0; e < 4; ++e) x[4 * n + e] = exp2_fast(fmaf(x[4 * n + e], scale_log2, e % 2 ? -lse.y : -lse.x));
        p[2 * n] = pack<T>(x[4 * n], x[4 * n + 1]);
        p[2 * n + 1] = pack<T>(x[4 * n + 2], x[4 * n + 3]);
        if constexpr (Tile::dropout) {
          const uint32_t four = kept[n / 8] >> n % 8 * 4;
          dropped[2 * n] = p[2 * n] & ((four & 1 ? 0xffffu : 0) | (four & 2 ? 0xffff0000u : 0));
          dropped[2 * n + 1] = p[2 * n + 1] & ((four & 4 ? 0xffffu : 0) | (four & 8 ? 0xffff0000u : 0));
        }
      }
    };
    exponentials(0, NT / 2);
    issue_dp();
    exponentials(NT / 2, NT);
    if constexpr (Tile::dropout)
      issue_sum(dv, dropped, do_tile, !fresh);
    else
      issue_sum(dv, p, do_tile, !fresh);
    wgmma_wait<1>();
    pin(dp);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      float2 delta = reinterpret_cast<const float2*>(stats)[M / 2 + 4 * n + t];
      float y[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float probability = e % 2 ? high_half<T>(p[2 * n + e / 2]) : low_half<T>(p[2 * n + e / 2]);
        float d = dp[4 * n + e];
        if constexpr (Tile::dropout) d = kept[n / 8] >> (n % 8 * 4 + e) & 1 ? d * s.dropout.keep_scale : 0.f;
        y[e] = probability * (d - (e % 2 ? delta.y : delta.x));
      }
      ds[2 * n] = pack<T>(y[0], y[1]), ds[2 * n + 1] = pack<T>(y[2], y[3]);
    }
    if (store_stage >= 0) {  // dK and dV of the item before have left shared memory
      if (thread == 0) bulk_wait_read<0>(), barrier_arrive(kv_empty(store_stage));
      store_stage = -1;
    }
    named_sync(1, 256);  // both warpgroups have dQ of the step before
#pragma unroll
    for (int k = 0; k < M / 16; ++k)
      store_matrices((ds_matrix ^ uint32_t(k % 4 * 32)) + uint32_t(k / 4 * Tile::keys * 128), ds[4 * k], ds[4 * k + 1],
                     ds[4 * k + 2], ds[4 * k + 3]);
    async_fence_shared();
    wgmma_wait<0>();  // dV
    if (lane == 0) barrier_arrive(do_empty(os));
    if (++os == OS) os = 0, op ^= 1;
    named_sync(2, 256);
    float dq[32];
    {
      uint64_t rows = operand(base + Tile::ds_at + uint32_t(D == 64 ? w * Tile::keys * 128 : 0));
      uint64_t columns = operand(keys + uint32_t(D == 64 ? 0 : w * Tile::keys * 128));
      wgmma_fence();
      wgmma<T, 64, true, true, true>(dq, rows, columns, 0);
#pragma unroll
      for (int k = 1; k < Tile::keys / 16; ++k)
        wgmma<T, 64, true, true>(dq, rows + uint64_t(k * 2048 >> 4), columns + uint64_t(k * 2048 >> 4), 1);
      wgmma_commit();
    }

    // The next step and its scores, so products overlap with the rest of this one; without a next
    // step, computed on leftover shared memory.
    const int this_qs = qs, this_i = i, this_ks = ks, this_key_tile = key_tile;
    const uint32_t this_keys = keys;
    const bool last_step = i == begin && head == s.group() - 1, this_fresh = fresh;
    if (++qs == QS) qs = 0, qp ^= 1;
    bool wait_q = true;
    fresh = false;
    if (last_step) {
      wait_q = false;
      if constexpr (KS > 1) {
        if (++ks == KS) ks = 0, kp ^= 1;
        barrier_wait(kv_full(ks), kp);
        key_tile = work[ks].key_tile, begin = work[ks].begin, i = work[ks].end - 1, head = 0;
        wait_q = key_tile >= 0, fresh = true;
        keys = base + Tile::k_at + uint32_t(ks * Tile::kv_bytes);
      }
    } else if (++head == s.group()) {
      head = 0, --i;
    }
    if (wait_q) barrier_wait(q_full(qs), qp);
    issue_scores(scores, keys, base + Tile::q_at + uint32_t(qs * Tile::q_bytes));
    issue_sum(dk, ds, q_tile, !this_fresh);
    wgmma_wait<2>();
    pin(dq);

    barrier_wait(dq_empty(w), parity ^ 1);
    parity ^= 1;
    const KeyTiles seen = key_tiles_of<Tile>(a, work[this_ks].batch, this_i);
    float4* mine = reinterpret_cast<float4*>(memory + Tile::dq_at + w * Tile::half_bytes) + thread;
    if (this_key_tile == seen.last) {
      if (seen.first != seen.last) {
        barrier_wait(prior_full(w), prior_parity);
        prior_parity ^= 1;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          float4 sum = mine[128 * n];
          dq[4 * n] += sum.x, dq[4 * n + 1] += sum.y, dq[4 * n + 2] += sum.z, dq[4 * n + 3] += sum.w;
        }
        named_sync(3 + w, 128);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k)
        store_matrices(half + (matrix ^ uint32_t(k * 32)), pack<T>(s.scale * dq[8 * k], s.scale * dq[8 * k + 1]),
                       pack<T>(s.scale * dq[8 * k + 2], s.scale * dq[8 * k + 3]),
                       pack<T>(s.scale * dq[8 * k + 4], s.scale * dq[8 * k + 5]),
                       pack<T>(s.scale * dq[8 * k + 6], s.scale * dq[8 * k + 7]));
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) mine[128 * n] = make_float4(dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
    }
    async_fence_shared();
    sync_warp();
    if (lane == 0) barrier_arrive(dq_full(w));
    wgmma_wait<1>();
    pin(scores);
    if (!last_step) continue;

    // dK and dV through the place of this warpgroup's keys and values, once nobody reads them for
    // dQ.
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(q_empty(this_qs));
    named_sync(1, 256);
    const float dv_scale = Tile::dropout ? s.dropout.keep_scale : 1.f;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      uint32_t to = uint32_t(w * 64 * 128 + k / 4 * Tile::keys * 128) + (matrix ^ uint32_t(k % 4 * 32));
      store_matrices(this_keys + to, pack<T>(s.scale * dk[8 * k], s.scale * dk[8 * k + 1]),
                     pack<T>(s.scale * dk[8 * k + 2], s.scale * dk[8 * k + 3]),
                     pack<T>(s.scale * dk[8 * k + 4], s.scale * dk[8 * k + 5]),
                     pack<T>(s.scale * dk[8 * k + 6], s.scale * dk[8 * k + 7]));
      store_matrices(this_keys + uint32_t(Tile::v_at) + to, pack<T>(dv_scale * dv[8 * k], dv_scale * dv[8 * k + 1]),
                     pack<T>(dv_scale * dv[8 * k + 2], dv_scale * dv[8 * k + 3]),
                     pack<T>(dv_scale * dv[8 * k + 4], dv_scale * dv[8 * k + 5]),
                     pack<T>(dv_scale * dv[8 * k + 6], dv_scale * dv[8 * k + 7]));
    }
    async_fence_shared();
    named_sync(3 + w, 128);
    if (thread == 0) {
      const int batch = work[this_ks].batch;
      const int column = (s.key_head + work[this_ks].kv_head) * D, row = this_key_tile * Tile::keys + 64 * w;
#pragma unroll
      for (int d = 0; d < D; d += 64) {
        uint32_t from = uint32_t(w * 64 * 128 + d / 64 * Tile::keys * 128);
        tensor_store(&a.dkv, column + d, row, batch, this_keys + from);
        tensor_store(&a.dkv, column + s.kv_heads * D + d, row, batch, this_keys + uint32_t(Tile::v_at) + from);
      }
      bulk_commit();
      if constexpr (KS == 1) bulk_wait_read<0>(), barrier_arrive(kv_empty(0));
    }
    if constexpr (KS > 1) {
      store_stage = this_ks;
      if (key_tile < 0) break;
    } else {
      kp ^= 1;
      barrier_wait(kv_full(0), kp);
      key_tile = work[0].key_tile, begin = work[0].begin, i = work[0].end - 1, head = 0;
      if (key_tile < 0) break;
      fresh = true;
      scores_of_first_step();
    }
  }
  if (thread == 0) bulk_wait<0>();
#endif
}

}  // namespace crest::cuda::sm90
