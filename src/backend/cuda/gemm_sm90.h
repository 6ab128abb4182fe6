// A product of halves for compute capability 9.0 whose pointwise work runs beside the products of the next tile.
//
// A block goes over tiles of 128 x 256 of the result. Warp 0 loads operands by TMA. Warpgroups 1 and 2 multiply, 64
// rows each, leave the tile rounded to halves in shared memory and go on at once. Warps 1 to 3 take it from there: each
// has whole rows and a lane 8 columns, so that what it reads and writes of device memory are full lines and sums over
// rows stay in registers.
//
// The order of all additions depends on the sizes only.
#pragma once
#include "backend/cuda/attention_sm90.h"
#include "backend/cuda/device/activation.h"

namespace crest::cuda::sm90 {

// 8 halves.
struct alignas(16) Eight {
  uint32_t word[4];
};
// Written in PTX: nvcc 13.0 makes some of these stores pieces of two and four bytes, and a branch of each condition.
__device__ inline void store_if(bool condition, void* to, const Eight& x) {
#ifdef __CUDACC__
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %0, 0;\n"
      "@p st.global.v4.b32 [%1], {%2, %3, %4, %5};}\n" ::"r"(int(condition)),
      "l"(to), "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
      : "memory");
#else
  if (condition) *static_cast<Eight*>(to) = x;
#endif
}

// What becomes of y = a b. "halves": rounded to the type of c before it is used again.
enum class After {
  plain,      // c = y
  bias,       // c = y + bias
  add,        // c = y (in halves) + x
  bias_gelu,  // h = y + bias, second = h, c = gelu(h in halves)
  gelu_grad   // c = y (in halves) * gelu'(x), second = gelu(x) (may be absent), sums over rows of c
};

struct GemmSizes {
  int m, n, k;
  int group;  // row tiles whose tiles stand together, column by column
  int row_tiles, column_tiles;
};

struct GemmArgs {
  CUtensorMap a, b;
  GemmSizes s;
  const void *x, *bias;
  void *c, *second;
  float* partial;  // gelu_grad: [row tiles, n], the sums over the rows of a tile
};

// AT: a lies as [k, m] in memory, else [m, k]. BT: b lies as [k, n], else [n, k].
template <class T_, After after_, bool AT_, bool BT_>
struct GemmTile {
  using T = T_;
  static constexpr After after = after_;
  static constexpr bool AT = AT_, BT = BT_, has_bias = after == After::bias || after == After::bias_gelu;
  static constexpr bool has_second = after == After::bias_gelu || after == After::gelu_grad;
  static constexpr bool reads_x = after == After::gelu_grad || after == After::add, sums = after == After::gelu_grad;
  static constexpr int rows = 128, columns = 256, depth = 64, stages = 3;
  static constexpr int after_warps = 3, batch = 4;  // rows that a warp of them works on at a time
  static constexpr int box_bytes = 64 * 64 * 2, a_boxes = rows / 64, b_boxes = columns / 64;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * box_bytes, b_at = a_boxes * box_bytes;
  static constexpr int result_at = stages * stage_bytes, result_bytes = rows * columns * 2;
  static constexpr int row_bytes = columns * 2, x_slots = 2;  // batches of x that a warp has asked for
  static constexpr int x_at = result_at + result_bytes, slot_bytes = batch * row_bytes;
  static constexpr int x_bytes = reads_x ? after_warps * x_slots * slot_bytes : 0;
  static constexpr int sums_at = x_at + x_bytes, sums_bytes = sums ? after_warps * columns * 4 : 0;
  static constexpr int bias_at = sums_at + sums_bytes, bias_bytes = has_bias ? columns * 4 : 0;
  static constexpr int barriers_at = bias_at + bias_bytes, barriers = 2 * stages + 4 + after_warps * x_slots;
  static constexpr int shared_bytes = barriers_at + 8 * barriers + 1024;
  static_assert(shared_bytes <= 232448);
};

// The tile of a block's place in the list, in tiles.
struct GemmPlace {
  int row, column;
};
__device__ inline GemmPlace gemm_place(const GemmSizes& s, int item) {
  int all = s.group * s.column_tiles, group = item / all, rest = item - group * all;
  int height = min(s.group, s.row_tiles - group * s.group), column = rest / height;
  return {group * s.group + rest - column * height, column};
}

template <class Tile>
__global__ void __launch_bounds__(384, 1) gemm_kernel(const __grid_constant__ GemmArgs a) {
#if CREST_HOPPER_CODE
  using T = typename Tile::T;
  constexpr int S = Tile::stages;
  const GemmSizes& s = a.s;
  unsigned char* const raw = dynamic_shared();
  const uint32_t raw_address = shared_address(raw), base = (raw_address + 1023) & ~1023u;
  unsigned char* const memory = raw + (base - raw_address);
  auto barrier = [&](int i) { return base + uint32_t(Tile::barriers_at + 8 * i); };
  auto full = [&](int i) { return barrier(i); };
  auto empty = [&](int i) { return barrier(S + i); };
  const uint32_t result_full = barrier(2 * S), result_empty = barrier(2 * S + 1);
  const uint32_t bias_full = barrier(2 * S + 2), bias_empty = barrier(2 * S + 3);
  auto x_full = [&](int w, int slot) { return barrier(2 * S + 4 + w * Tile::x_slots + slot); };

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 8);
    barrier_init(result_full, 8), barrier_init(result_empty, Tile::after_warps);
    barrier_init(bias_full, 1), barrier_init(bias_empty, 8);
    for (int i = 0; i < Tile::after_warps * Tile::x_slots; ++i) barrier_init(x_full(0, i), 1);
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  const int items = s.row_tiles * s.column_tiles, step = block_count(), first_item = block_index();
  const int k_steps = (s.k + Tile::depth - 1) / Tile::depth;

  if (warp == 0) {
    if (lane == 0) {  // operands
      int stage = 0, parity = 1;
      for (int item = first_item; item < items; item += step) {
        const GemmPlace at = gemm_place(s, item);
        const int row = at.row * Tile::rows, column = at.column * Tile::columns;
        for (int i = 0; i < k_steps; ++i) {
          barrier_wait(empty(stage), parity);
          barrier_arrive_expect(full(stage), Tile::stage_bytes);
          const uint32_t to = base + uint32_t(stage * Tile::stage_bytes);
          const int k = i * Tile::depth;
#pragma unroll
          for (int r = 0; r < Tile::a_boxes; ++r)
            tensor_load(to + uint32_t(r * Tile::box_bytes), &a.a, Tile::AT ? row + 64 * r : k,
                        Tile::AT ? k : row + 64 * r, 0, full(stage));
#pragma unroll
          for (int j = 0; j < Tile::b_boxes; ++j)
            tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), &a.b, Tile::BT ? column + 64 * j : k,
                        Tile::BT ? k : column + 64 * j, 0, full(stage));
          if (++stage == S) stage = 0, parity ^= 1;
        }
      }
    }
  } else if (warp < 4) {  // pointwise work
    constexpr int R = Tile::batch, W = Tile::after_warps, batches = Tile::rows / R;
    const int mine = warp - 1;
    struct Cursor {  // over the batches of rows that this warp has
      int item, batch;
      GemmPlace at;
    };
    auto advance = [&](Cursor& c) {
      if ((c.batch += W) < batches) return;
      c.batch = mine, c.item += step;
      if (c.item < items) c.at = gemm_place(s, c.item);
    };
    // Outside of the matrix: rows that are inside, or nothing; y is 0 there.
    const uint32_t x_slots = base + uint32_t(Tile::x_at + mine * Tile::x_slots * Tile::slot_bytes);
    auto load_x = [&](Cursor& c, int slot) {
      if (c.item >= items) return;
      if (lane == 0) {
        const int column = c.at.column * Tile::columns, row = c.at.row * Tile::rows + R * c.batch;
        const auto bytes = uint32_t(min(Tile::columns, s.n - column) * 2);
        barrier_arrive_expect(x_full(mine, slot), R * bytes);
#pragma unroll
        for (int r = 0; r < R; ++r)
          bulk_load(x_slots + uint32_t(slot * Tile::slot_bytes + r * Tile::row_bytes),
                    static_cast<const T*>(a.x) + int64_t(min(row + r, s.m - 1)) * s.n + column, bytes,
                    x_full(mine, slot));
      }
      advance(c);
    };
    [[maybe_unused]] auto pass_bias = [&](int item, int parity) {  // of a tile, to those who multiply
      if (mine != 0 || item >= items) return;
      const int column = gemm_place(s, item).column * Tile::columns + 8 * lane;
      float b[8] = {};
      if (column < s.n) load_floats<8>(static_cast<const T*>(a.bias) + column, b);
      barrier_wait(bias_empty, uint32_t(parity));
      float* const to = reinterpret_cast<float*>(memory + Tile::bias_at) + 8 * lane;
      store_floats<4>(to, {b[0], b[1], b[2], b[3]});
      store_floats<4>(to + 4, {b[4], b[5], b[6], b[7]});
      sync_warp();
      if (lane == 0) barrier_arrive(bias_full);
    };

    Cursor now = {first_item, mine, gemm_place(s, min(first_item, items - 1))}, next = now;
    int parity = 0;
    [[maybe_unused]] float sum[8] = {};
    auto work = [&](int slot, int x_parity) {
      if (now.batch == mine) {  // a new tile
        barrier_wait(result_full, uint32_t(parity));
        if constexpr (Tile::has_bias) pass_bias(now.item + step, parity);
      }
      const unsigned char* tile = memory + Tile::result_at + lane / 8 * (Tile::rows * 128);
      Eight y[R];
#pragma unroll
      for (int r = 0; r < R; ++r) y[r] = *reinterpret_cast<const Eight*>(tile + swizzled(R * now.batch + r, lane % 8));
      const bool last = now.batch + W >= batches;
      if (last) {
        sync_warp();
        if (lane == 0) barrier_arrive(result_empty);
      }
      [[maybe_unused]] Eight with[R];
      if constexpr (Tile::reads_x) {
        barrier_wait(x_full(mine, slot), uint32_t(x_parity));
        const unsigned char* from = memory + (x_slots - base) + slot * Tile::slot_bytes + 16 * lane;
#pragma unroll
        for (int r = 0; r < R; ++r) with[r] = *reinterpret_cast<const Eight*>(from + r * Tile::row_bytes);
        sync_warp();
        load_x(next, slot);
      }
      const int column = now.at.column * Tile::columns + 8 * lane, row = now.at.row * Tile::rows + R * now.batch;
      const int64_t to = int64_t(row) * s.n + column;
      const int inside = column < s.n ? s.m - row : 0;  // rows
      T *const c = static_cast<T*>(a.c) + to, *const second = static_cast<T*>(a.second) + to;
      if constexpr (Tile::after == After::plain || Tile::after == After::bias) {
#pragma unroll
        for (int r = 0; r < R; ++r) store_if(r < inside, c + int64_t(r) * s.n, y[r]);
      } else {
#pragma unroll
        for (int two = 0; two < R; two += 2) {  // enough to keep the special function unit busy
          Eight f[2], g[2];                     // c and second
#pragma unroll
          for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const uint32_t both = y[two + r].word[i], x = with[two + r].word[i];
              const float low = low_half<T>(both), high = high_half<T>(both);
              if constexpr (Tile::after == After::bias_gelu) {
                f[r].word[i] = pack<T>(gelu(low), gelu(high)), g[r].word[i] = both;
              } else if constexpr (Tile::after == After::add) {
                f[r].word[i] = pack<T>(low + low_half<T>(x), high + high_half<T>(x));
              } else {
                float gelu_x[2], dx[2];
                gelu_and_grad(low, low_half<T>(x), gelu_x[0], dx[0]);
                gelu_and_grad(high, high_half<T>(x), gelu_x[1], dx[1]);
                sum[2 * i] += dx[0], sum[2 * i + 1] += dx[1];
                f[r].word[i] = pack<T>(dx[0], dx[1]), g[r].word[i] = pack<T>(gelu_x[0], gelu_x[1]);
              }
            }
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int64_t offset = int64_t(two + r) * s.n;
            store_if(two + r < inside, c + offset, f[r]);
            if constexpr (Tile::has_second) store_if(two + r < inside && a.second, second + offset, g[r]);
          }
        }
      }
      if (last) {
        if constexpr (Tile::sums) {
          float* const all = reinterpret_cast<float*>(memory + Tile::sums_at);
          float* const own = all + mine * Tile::columns + 8 * lane;
          store_floats<4>(own, {sum[0], sum[1], sum[2], sum[3]});
          store_floats<4>(own + 4, {sum[4], sum[5], sum[6], sum[7]});
#pragma unroll
          for (float& x : sum) x = 0;
          named_sync(1, 32 * W);
          for (int i = 32 * mine + lane; i < Tile::columns; i += 32 * W) {
            float total = 0;
#pragma unroll
            for (int w = 0; w < W; ++w) total += all[w * Tile::columns + i];
            const int j = now.at.column * Tile::columns + i;
            if (j < s.n) a.partial[int64_t(now.at.row) * s.n + j] = total;
          }
          named_sync(1, 32 * W);
        }
        parity ^= 1;
      }
      advance(now);
    };
    if constexpr (Tile::has_bias) pass_bias(first_item, 1);
    if constexpr (Tile::reads_x) {
#pragma unroll
      for (int slot = 0; slot < Tile::x_slots; ++slot) load_x(next, slot);
    }
    for (int slot = 0, x_parity = 0; now.item < items;) {
      work(slot, x_parity);
      if (++slot == Tile::x_slots) slot = 0, x_parity ^= 1;
    }
  } else {  // products
    const int w = warp / 4 - 1, t = lane % 4;
    const uint32_t matrix =
        base + Tile::result_at + swizzled(64 * w + 16 * (warp % 4) + lane % 16, lane / 16);  // as in store_matrices
    int stage = 0, parity = 0, tile_parity = 0;
    float d[Tile::columns / 2];
    auto release = [&](int i) {
      if (lane == 0) barrier_arrive(empty(i));
    };
    auto multiply = [&](auto zero) {
      barrier_wait(full(stage), uint32_t(parity));
      const uint32_t at = base + uint32_t(stage * Tile::stage_bytes);
      const uint64_t x = operand(at + uint32_t(w * Tile::box_bytes));
      const uint64_t y = operand(at + Tile::b_at, Tile::BT ? Tile::box_bytes : 0);
      constexpr int dx = (Tile::AT ? 2048 : 32) >> 4, dy = (Tile::BT ? 2048 : 32) >> 4;
      wgmma_fence();
      wgmma<T, Tile::columns, Tile::AT, Tile::BT, zero()>(d, x, y, !zero());
#pragma unroll
      for (int i = 1; i < Tile::depth / 16; ++i)
        wgmma<T, Tile::columns, Tile::AT, Tile::BT>(d, x + uint64_t(i * dx), y + uint64_t(i * dy), 1);
      wgmma_commit();
    };
    for (int item = first_item; item < items; item += step, tile_parity ^= 1) {
      multiply(std::true_type());
      for (int i = 1; i < k_steps; ++i) {
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
      if constexpr (Tile::has_bias) {
        barrier_wait(bias_full, uint32_t(tile_parity));
        const float2* bias = reinterpret_cast<const float2*>(memory + Tile::bias_at) + t;
#pragma unroll
        for (int j = 0; j < Tile::columns / 8; ++j) {
          const float2 x = bias[4 * j];
          d[4 * j] += x.x, d[4 * j + 1] += x.y, d[4 * j + 2] += x.x, d[4 * j + 3] += x.y;
        }
        sync_warp();
        if (lane == 0) barrier_arrive(bias_empty);
      }
      barrier_wait(result_empty, uint32_t(tile_parity ^ 1));
#pragma unroll
      for (int j = 0; j < Tile::columns / 16; ++j)
        store_matrices((matrix ^ uint32_t(j % 4 * 32)) + uint32_t(j / 4 * Tile::rows * 128),
                       pack<T>(d[8 * j], d[8 * j + 1]), pack<T>(d[8 * j + 2], d[8 * j + 3]),
                       pack<T>(d[8 * j + 4], d[8 * j + 5]), pack<T>(d[8 * j + 6], d[8 * j + 7]));
      sync_warp();
      if (lane == 0) barrier_arrive(result_full);
    }
  }
#endif
}

// Addresses of a product; as in GemmArgs.
struct GemmCall {
  const void *a, *b, *x, *bias;
  void *c, *second;
  float* partial;
};

template <class Tile>
int64_t gemm_partial_rows(int64_t m) {
  return (m + Tile::rows - 1) / Tile::rows;
}

// blocks: as many as run at a time; group: row tiles whose tiles stand together, or fewer. Operands are aligned to 16
// bytes; m (with AT), n and k are multiples of 8. Returns a cudaError_t.
template <class Tile>
int start_gemm(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks,
               const LaunchOn& on) {
  constexpr bool bf16 = std::is_same_v<typename Tile::T, bfloat16>;
  GemmArgs a;
  a.x = call.x, a.bias = call.bias, a.c = call.c, a.second = call.second, a.partial = call.partial;
  const int row_tiles = (m + Tile::rows - 1) / Tile::rows, column_tiles = (n + Tile::columns - 1) / Tile::columns;
  a.s = {m, n, k, group < row_tiles ? group : row_tiles, row_tiles, column_tiles};
  if (!rows_map(&a.a, encode, call.a, bf16, 1, Tile::AT ? k : m, Tile::AT ? m : k) ||
      !rows_map(&a.b, encode, call.b, bf16, 1, Tile::BT ? k : n, Tile::BT ? n : k))
    return 1;
  const auto grid = unsigned(blocks < row_tiles * column_tiles ? blocks : row_tiles * column_tiles);
#ifdef __CUDACC__
  return start_kernel(on, gemm_kernel<Tile>, grid, 384, Tile::shared_bytes, a);
#else
  (void)on;
  emulated::run(grid, 384, Tile::shared_bytes, [&] { gemm_kernel<Tile>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
