// Weight gradients for compute capability 9.0: few tiles, a long sum. c[m, n] = a[k, m]^T b[k, n],
// optionally added to a summand.
//
// If the tiles of 128 x 256 do not fill the GPU's last round, all blocks share them: each has an
// equal number of steps of the sum. Blocks go over the same rows of a and b at the same time, so
// these are read from memory once. A block leaves its part of a tile in workspace; a second kernel
// adds the parts, in the order of the sum. The order of all additions depends only on the sizes and
// the number of blocks.
#pragma once
#include "backend/cuda/gemm_sm90.h"

namespace crest::cuda::sm90 {

struct WeightTile {
  static constexpr int rows = 128, columns = 256, depth = 64, stages = 4, threads = 384;
  static constexpr int box_bytes = 64 * 64 * 2, a_boxes = rows / 64, b_boxes = columns / 64;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * box_bytes, b_at = a_boxes * box_bytes;
  static constexpr int barriers_at = stages * stage_bytes;
  static constexpr int shared_bytes = barriers_at + 8 * 2 * stages + 1024;
  static_assert(shared_bytes <= max_shared_bytes);
};

// `whole` rounds of a tile a block. The other `shared` tiles have
// `owners` blocks each, with `each` steps one after another; the
// `left` last steps are dealt out among blocks without a tile.
struct WeightPlan {
  int row_tiles, column_tiles, steps, blocks;  // steps: of the sum of a tile
  int whole, shared, owners, each, left;

  __host__ __device__ int tiles() const { return row_tiles * column_tiles; }
  __host__ __device__ int first_shared() const { return whole * blocks; }
  __host__ __device__ int owned() const { return owners * shared; }  // parts, and blocks
  __host__ __device__ int parts() const { return shared ? blocks + shared - 1 : 0; }
};
constexpr int64_t most_weight_k = int64_t(1) << 28;  // the steps of 255 tiles are an int
// A last round with a tile for nearly every block is not shared. So 132 blocks have up to 254
// parts, less than cuBLASLt's workspace (32 MiB).
inline WeightPlan weight_plan(int64_t m, int64_t n, int64_t k, int blocks) {
  WeightPlan p = {};
  p.row_tiles = int((m + WeightTile::rows - 1) / WeightTile::rows);
  p.column_tiles = int((n + WeightTile::columns - 1) / WeightTile::columns);
  p.steps = int((k + WeightTile::depth - 1) / WeightTile::depth), p.blocks = blocks;
  p.whole = p.tiles() / blocks, p.shared = p.tiles() % blocks;
  if (p.shared > blocks * 15 / 16) ++p.whole, p.shared = 0;
  if (p.shared) {
    p.owners = blocks / p.shared;
    p.each = int((int64_t(p.shared) * p.steps + blocks - 1) / blocks);
    p.left = p.steps > p.owners * p.each ? p.steps - p.owners * p.each : 0;
  }
  return p;
}
// Floats.
inline int64_t weight_workspace(const WeightPlan& p) {
  return int64_t(p.parts()) * WeightTile::rows * WeightTile::columns;
}

// A run of steps of a tile; part: where its sums go, -1 for c.
struct WeightPiece {
  int tile, first, steps, part;
};
// Piece `index` of a block; without steps: there are no more.
__host__ __device__ inline WeightPiece weight_piece(const WeightPlan& p, int block, int index) {
  if (index < p.whole) {
    const int tile = index * p.blocks + block;
    return tile < p.tiles() ? WeightPiece{tile, 0, p.steps, -1} : WeightPiece{};
  }
  index -= p.whole;
  if (block < p.owned()) {
    const int owner = block / p.shared, first = owner * p.each;
    if (index > 0 || first >= p.steps) return {};
    return {p.first_shared() + block % p.shared, first, p.each < p.steps - first ? p.each : p.steps - first, block};
  }
  if (p.left == 0) return {};
  // The last steps of all shared tiles are one list, with `each` for a block.
  const int helper = block - p.owned();
  const int begin = helper * p.each, all = p.shared * p.left;
  const int end = begin + p.each < all ? begin + p.each : all;
  if (begin >= end) return {};
  const int tile = begin / p.left + index, last = (tile + 1) * p.left;
  const int from = begin > tile * p.left ? begin : tile * p.left, to = end < last ? end : last;
  if (from >= to) return {};
  return {p.first_shared() + tile, p.owners * p.each + from - tile * p.left, to - from, p.owned() + tile + helper};
}

struct WeightArgs {
  CUtensorMap a, b;
  WeightPlan plan;
  int m, n;
  const void* add;  // to c; null: nothing
  void* c;
  float* parts;
};

// Where 4 sums of a thread are: columns `column`, + 1 of rows `row` and + 8, for each of 32 blocks
// of 8 columns.
struct WeightPlace {
  int row, column;
};
// The shorter side of c is the fast one: the tiles of a round share rows of a and b.
__device__ inline WeightPlace weight_place(const WeightPlan& p, int tile, int thread) {
  const bool down = p.row_tiles < p.column_tiles;
  const int fast = down ? p.row_tiles : p.column_tiles, slow = tile / fast, rest = tile - slow * fast;
  return {(down ? rest : slow) * WeightTile::rows + thread / 32 * 16 + thread % 32 / 4,
          (down ? slow : rest) * WeightTile::columns + thread % 4 * 2};
}
// The sums of N of these blocks. All of `add` is read first: it may be c, and then each store would
// hold up the loads behind it.
template <class C, int N>
__device__ inline void weight_store(const WeightArgs& a, int row, int column, const float* d) {
  float before[N][4] = {};
  auto each_pair = [&](auto&& body) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (row + 8 * h < a.m && column + 8 * j < a.n) body(j, h, int64_t(row + 8 * h) * a.n + column + 8 * j);
  };
  if (a.add)
    each_pair([&](int j, int h, int64_t at) {
      float x[2];
      load_floats<2>(static_cast<const C*>(a.add) + at, x);
      before[j][2 * h] = x[0], before[j][2 * h + 1] = x[1];
    });
  each_pair([&](int j, int h, int64_t at) {
    const float sum[2] = {d[4 * j + 2 * h] + before[j][2 * h], d[4 * j + 2 * h + 1] + before[j][2 * h + 1]};
    store_floats<2>(static_cast<C*>(a.c) + at, sum);
  });
}

// T: of a and b; C: of c.
template <class T, class C>
__global__ void __launch_bounds__(WeightTile::threads, 1) weight_kernel(const __grid_constant__ WeightArgs a) {
#if CREST_HOPPER_CODE
  using Tile = WeightTile;
  constexpr int S = Tile::stages;
  const WeightPlan& p = a.plan;
  unsigned char* const raw = dynamic_shared();
  const uint32_t raw_address = shared_address(raw), base = (raw_address + 1023) & ~1023u;
  auto full = [&](int i) { return base + uint32_t(Tile::barriers_at + 8 * i); };
  auto empty = [&](int i) { return full(S + i); };
  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 8);
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  if (warp < 4) {
    registers_give<40>();
    if (warp == 0 && lane == 0) {
      int stage = 0, parity = 1;
      for (int index = 0;; ++index) {
        const WeightPiece piece = weight_piece(p, block_index(), index);
        if (piece.steps == 0) break;
        const WeightPlace at = weight_place(p, piece.tile, 0);
        for (int i = piece.first; i < piece.first + piece.steps; ++i) {
          barrier_wait(empty(stage), uint32_t(parity));
          barrier_arrive_expect(full(stage), Tile::stage_bytes);
          const uint32_t to = base + uint32_t(stage * Tile::stage_bytes);
#pragma unroll
          for (int r = 0; r < Tile::a_boxes; ++r)
            tensor_load(to + uint32_t(r * Tile::box_bytes), &a.a, at.row + 64 * r, i * Tile::depth, 0, full(stage));
#pragma unroll
          for (int j = 0; j < Tile::b_boxes; ++j)
            tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), &a.b, at.column + 64 * j, i * Tile::depth, 0,
                        full(stage));
          if (++stage == S) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    registers_take<232>();
    const int w = warp / 4 - 1, thread = thread_index() - 128;
    int stage = 0, parity = 0;
    float d[Tile::columns / 2];
    auto multiply = [&](auto zero) {
      barrier_wait(full(stage), uint32_t(parity));
      const uint32_t at = base + uint32_t(stage * Tile::stage_bytes);
      const uint64_t x = operand(at + uint32_t(w * Tile::box_bytes));
      const uint64_t y = operand(at + Tile::b_at, Tile::box_bytes);
      constexpr int step = 2048 >> 4;
      wgmma_fence();
      wgmma<T, Tile::columns, true, true, zero()>(d, x, y, !zero());
#pragma unroll
      for (int i = 1; i < Tile::depth / 16; ++i)
        wgmma<T, Tile::columns, true, true>(d, x + uint64_t(i * step), y + uint64_t(i * step), 1);
      wgmma_commit();
    };
    auto release = [&](int i) {
      if (lane == 0) barrier_arrive(empty(i));
    };
    for (int index = 0;; ++index) {
      const WeightPiece piece = weight_piece(p, block_index(), index);
      if (piece.steps == 0) break;
      multiply(std::true_type());
      for (int i = 1; i < piece.steps; ++i) {
        const int before = stage;
        if (++stage == S) stage = 0, parity ^= 1;
        multiply(std::false_type());
        wgmma_wait<1>();
        release(before);
      }
      wgmma_wait<0>();
      pin(d);
      release(stage);
      if (++stage == S) stage = 0, parity ^= 1;
      if (piece.part < 0) {
        const WeightPlace at = weight_place(p, piece.tile, thread);
#pragma unroll
        for (int j = 0; j < Tile::columns / 8; j += 8) weight_store<C, 8>(a, at.row, at.column + 8 * j, d + 4 * j);
      } else {
        float* const to = a.parts + int64_t(piece.part) * Tile::rows * Tile::columns + thread * 4;
#pragma unroll
        for (int j = 0; j < Tile::columns / 8; ++j)
          store_vec(to + j * 1024, Vec<float, 4>{d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]});
      }
    }
  }
#endif
}

constexpr int weight_sum_split = 16;  // blocks a tile
// One block of 256 threads for a sixteenth of a shared tile's columns.
template <class C>
__global__ void __launch_bounds__(256) weight_sum_kernel(const __grid_constant__ WeightArgs a) {
#if CREST_HOPPER_CODE
  wait_for_predecessors();
  const WeightPlan& p = a.plan;
  const int tile = block_index() / weight_sum_split, piece = block_index() % weight_sum_split, thread = thread_index();
  constexpr int count = WeightTile::columns / 8 / weight_sum_split;
  const float* const from = a.parts + (piece * count * 256 + thread) * 4;
  float sum[count * 4] = {};
  auto add = [&](int part) {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const auto x = load_vec<4>(from + int64_t(part) * WeightTile::rows * WeightTile::columns + j * 1024);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[4 * j + e] += x.x[e];
    }
  };
  for (int owner = 0; owner < p.owners && owner * p.each < p.steps; ++owner) add(owner * p.shared + tile);
  if (p.left) {
    const int last = ((tile + 1) * p.left - 1) / p.each;
    for (int helper = tile * p.left / p.each; helper <= last; ++helper) add(p.owned() + tile + helper);
  }
  const WeightPlace at = weight_place(p, p.first_shared() + tile, thread);
  weight_store<C, count>(a, at.row, at.column + 8 * piece * count, sum);
#endif
}

// Addresses. a, b: aligned to 16 bytes; add and c, which may be the same: to 8. parts:
// weight_workspace() floats.
struct WeightCall {
  const void *a, *b, *add;
  void* c;
  float* parts;
  int a_pitch = 0;  // elements from row to row of a; 0: m
};

// n and the pitch of a are multiples of 8. Returns a cudaError_t.
template <class T, class C>
int start_weight(const WeightCall& call, int m, int n, int k, EncodeTiled encode, int blocks, const LaunchOn& on) {
  constexpr bool bf16 = std::is_same_v<T, bfloat16>;
  WeightArgs a;
  a.plan = weight_plan(m, n, k, blocks);
  a.m = m, a.n = n, a.add = call.add, a.c = call.c, a.parts = call.parts;
  if (!rows_map(&a.a, encode, call.a, bf16, 1, k, m, call.a_pitch) || !rows_map(&a.b, encode, call.b, bf16, 1, k, n))
    return 1;
  const auto grid = unsigned(blocks), sums = unsigned(a.plan.shared * weight_sum_split);
#ifdef __CUDACC__
  cudaError_t code = start_kernel(on, weight_kernel<T, C>, grid, WeightTile::threads, WeightTile::shared_bytes, a);
  if (code == cudaSuccess && sums) code = start_kernel(on, weight_sum_kernel<C>, sums, 256, 0, a);
  return code;
#else
  (void)on;
  emulated::run(grid, WeightTile::threads, WeightTile::shared_bytes, [&] { weight_kernel<T, C>(a); });
  if (sums) emulated::run(sums, 256, 1024, [&] { weight_sum_kernel<C>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
