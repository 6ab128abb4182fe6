// The gradient of an activation in the GEMM of its input, for compute capability 9.0. With y = a b,
// rounded to the type of c:
//   of GELU: c = y gelu'(x); second = gelu(x) (may be absent); partial [row tiles, n] = the sums
//   over the rows of c in a tile;
//   of SwiGLU: c = y x_2 silu'(x); second = y silu(x); third = silu(x) x_2 (may be absent).
//
// A block goes over tiles of 128 x 256 of the result. Warpgroups 1 and 2 multiply,
// 64 rows each, leave their part of the tile rounded to 16 bits in shared memory and
// continue at once. Warps of warpgroup 0 take the tile from there. A warp has whole
// rows and a lane 8 columns, so its accesses to device memory are full lines and
// sums over rows stay in registers. The split between loading warps and pointwise
// warps depends on k: the time for the pointwise work of a tile grows with k.
#pragma once
#include "backend/cuda/gemm_sm90.h"

namespace crest::cuda::sm90 {

// For the following: the layouts of linear_dx, a [m, k] and b [k, n], and the tile of a block.
template <class T_>
struct GeluGradTile {
  using T = T_;
  static constexpr bool AT = false, BT = true;
  static constexpr int rows = 128, columns = 256, depth = 64, stages = 3, threads = 384, span = columns;
  static constexpr int box_bytes = 64 * 64 * 2, a_boxes = rows / 64, b_boxes = columns / 64, b_box_rows = 64;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * box_bytes, b_at = a_boxes * box_bytes;
  static constexpr int result_at = stages * stage_bytes, result_bytes = rows * columns * 2;
};

// For large k, and for SwiGLU: warp 0 loads operands, so no stage waits for anything else. Warps 1
// to 3 do the pointwise work; x and x_2 come to shared memory by TMA.
template <class T_, bool swiglu_ = false>
struct DeepTile : GeluGradTile<T_> {
  using Base = GeluGradTile<T_>;
  static constexpr bool prefetches_x = false, swiglu = swiglu_;
  static constexpr int inputs = swiglu ? 2 : 1;                     // x and x_2
  static constexpr int after_warps = 3, batch = 4 / inputs;         // rows of one of these warps at a time
  static constexpr int row_bytes = Base::columns * 2, x_slots = 2;  // batches requested by a warp
  static constexpr int x_at = Base::result_at + Base::result_bytes, slot_bytes = inputs * batch * row_bytes;
  static constexpr int sums_at = x_at + after_warps * x_slots * slot_bytes;
  static constexpr int barriers_at = sums_at + (swiglu ? 0 : after_warps * Base::columns * 4);
  static constexpr int barriers = 2 * Base::stages + 2 + after_warps * x_slots;
  static constexpr int shared_bytes = barriers_at + 8 * barriers + 1024;
  static_assert(shared_bytes <= 232448);
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) deep_kernel(const __grid_constant__ GemmArgs a) {
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
  auto x_full = [&](int w, int slot) { return barrier(2 * S + 2 + w * Tile::x_slots + slot); };

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 8);
    barrier_init(result_full, 8), barrier_init(result_empty, Tile::after_warps);
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
            tensor_load(to + uint32_t(r * Tile::box_bytes), &a.a, k, row + 64 * r, 0, full(stage));
#pragma unroll
          for (int j = 0; j < Tile::b_boxes; ++j)
            tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), &a.b, column + 64 * j, k, 0, full(stage));
          if (++stage == S) stage = 0, parity ^= 1;
        }
      }
    }
  } else if (warp < 4) {  // pointwise work
    constexpr int R = Tile::batch, W = Tile::after_warps, batches = Tile::rows / R;
    const int mine = warp - 1;
    struct Cursor {  // over this warp's batches of rows
      int item, batch;
      GemmPlace at;
    };
    auto advance = [&](Cursor& c) {
      if ((c.batch += W) < batches) return;
      c.batch = mine, c.item += step;
      if (c.item < items) c.at = gemm_place(s, c.item);
    };
    // Outside the matrix: rows inside it, or nothing; y is 0 there.
    const uint32_t x_slots = base + uint32_t(Tile::x_at + mine * Tile::x_slots * Tile::slot_bytes);
    auto load_x = [&](Cursor& c, int slot) {
      if (c.item >= items) return;
      if (lane == 0) {
        const int column = c.at.column * Tile::columns, row = c.at.row * Tile::rows + R * c.batch;
        const auto bytes = uint32_t(min(Tile::columns, s.n - column) * 2);
        barrier_arrive_expect(x_full(mine, slot), Tile::inputs * R * bytes);
#pragma unroll
        for (int i = 0; i < Tile::inputs; ++i)
#pragma unroll
          for (int r = 0; r < R; ++r)
            bulk_load(x_slots + uint32_t(slot * Tile::slot_bytes + (i * R + r) * Tile::row_bytes),
                      static_cast<const T*>(i ? a.x_2 : a.x) + int64_t(min(row + r, s.m - 1)) * s.n + column, bytes,
                      x_full(mine, slot));
      }
      advance(c);
    };
    Cursor now = {first_item, mine, gemm_place(s, min(first_item, items - 1))}, next = now;
    int parity = 0;
    float sum[8] = {};
    auto work = [&](int slot, int x_parity) {
      if (now.batch == mine) barrier_wait(result_full, uint32_t(parity));  // a new tile
      const unsigned char* tile = memory + Tile::result_at + lane / 8 * (Tile::rows * 128);
      Eight y[R];
#pragma unroll
      for (int r = 0; r < R; ++r) y[r] = *reinterpret_cast<const Eight*>(tile + swizzled(R * now.batch + r, lane % 8));
      const bool last = now.batch + W >= batches;
      if (last) {
        sync_warp();
        if (lane == 0) barrier_arrive(result_empty);
      }
      Eight with[Tile::inputs * R];
      barrier_wait(x_full(mine, slot), uint32_t(x_parity));
      const unsigned char* from = memory + (x_slots - base) + slot * Tile::slot_bytes + 16 * lane;
#pragma unroll
      for (int r = 0; r < Tile::inputs * R; ++r) with[r] = *reinterpret_cast<const Eight*>(from + r * Tile::row_bytes);
      sync_warp();
      load_x(next, slot);
      const int column = now.at.column * Tile::columns + 8 * lane, row = now.at.row * Tile::rows + R * now.batch;
      const int64_t to = int64_t(row) * s.n + column;
      const int inside = column < s.n ? s.m - row : 0;  // rows
      T *const c = static_cast<T*>(a.c) + to, *const second = static_cast<T*>(a.second) + to;
      T* const third = static_cast<T*>(a.third) + to;
#pragma unroll
      for (int two = 0; two < R; two += 2) {  // enough to keep the special function unit busy
        Eight f[2], g[2], h[2];               // c, second and third
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t both = y[two + r].word[i], x = with[two + r].word[i];
            float dx[2], beside[2];
            if constexpr (Tile::swiglu) {
              const uint32_t up = with[R + two + r].word[i];
              float product[2];
              swiglu_and_grad(low_half<T>(both), low_half<T>(x), low_half<T>(up), product[0], dx[0], beside[0]);
              swiglu_and_grad(high_half<T>(both), high_half<T>(x), high_half<T>(up), product[1], dx[1], beside[1]);
              h[r].word[i] = pack<T>(product[0], product[1]);
            } else {
              gelu_and_grad(low_half<T>(both), low_half<T>(x), beside[0], dx[0]);
              gelu_and_grad(high_half<T>(both), high_half<T>(x), beside[1], dx[1]);
              sum[2 * i] += dx[0], sum[2 * i + 1] += dx[1];
            }
            f[r].word[i] = pack<T>(dx[0], dx[1]), g[r].word[i] = pack<T>(beside[0], beside[1]);
          }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int64_t offset = int64_t(two + r) * s.n;
          store_if(two + r < inside, c + offset, f[r]);
          store_if(two + r < inside && a.second, second + offset, g[r]);
          if constexpr (Tile::swiglu) store_if(two + r < inside && a.third, third + offset, h[r]);
        }
      }
      if (last) parity ^= 1;
      if (last && !Tile::swiglu) {
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
      advance(now);
    };
#pragma unroll
    for (int slot = 0; slot < Tile::x_slots; ++slot) load_x(next, slot);
    for (int slot = 0, x_parity = 0; now.item < items;) {
      work(slot, x_parity);
      if (++slot == Tile::x_slots) slot = 0, x_parity ^= 1;
    }
  } else {  // multiplications
    const int w = warp / 4 - 1;
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
      const uint64_t y = operand(at + Tile::b_at, Tile::box_bytes);
      constexpr int dx = 32 >> 4, dy = 2048 >> 4;
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

// For small k: four warps do the pointwise work, each the only such warp of its scheduler, so only
// its own instructions hide their latency. It works on 16 results at a time, interleaves the
// special functions of the next 16 with the rest of these, and loads x three such steps ahead. A
// multiplying thread loads operands as soon as a stage is free.
template <class T_>
struct ShallowTile : GeluGradTile<T_> {
  using Base = GeluGradTile<T_>;
  static constexpr bool prefetches_x = true;
  static constexpr int after_warps = 4, batch = 2;  // rows of one of these warps at a time
  static constexpr int sums_at = Base::result_at + Base::result_bytes;
  static constexpr int barriers_at = sums_at + 2 * after_warps * Base::columns * 4, barriers = 2 * Base::stages + 4;
  static constexpr int shared_bytes = barriers_at + 8 * barriers + 1024;
  static_assert(shared_bytes <= 232448);
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) shallow_kernel(const __grid_constant__ GemmArgs a) {
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
  auto result_full = [&](int half) { return barrier(2 * S + half); };  // halves: the 64 rows of a warpgroup
  auto result_empty = [&](int half) { return barrier(2 * S + 2 + half); };

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 8);
    for (int i = 0; i < 2; ++i) barrier_init(result_full(i), 4), barrier_init(result_empty(i), Tile::after_warps);
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  const int items = s.row_tiles * s.column_tiles, step = block_count(), first_item = block_index();
  const int k_steps = (s.k + Tile::depth - 1) / Tile::depth;

  if (warp < 4) {  // pointwise work
    constexpr int R = Tile::batch, W = Tile::after_warps, batches = Tile::rows / (R * W), ring = 4;
    static_assert(batches / 2 % ring == 0);
    // A warp has 64 / W rows of each half, R of them in a batch.
    auto row_of = [&](int batch) { return batch / (batches / 2) * 64 + 64 / W * warp + batch % (batches / 2) * R; };
    struct Rows {
      int64_t at;  // of row 0 of a tile, in this lane's columns
      int inside;  // rows of the matrix from there on; 0 where its columns are outside
      GemmPlace place;
    };
    auto rows_of = [&](int item) {
      const GemmPlace place = gemm_place(s, min(item, items - 1));
      const int row = place.row * Tile::rows, column = place.column * Tile::columns + 8 * lane;
      return Rows{int64_t(row) * s.n + column, column < s.n && item < items ? s.m - row : 0, place};
    };
    auto load_x = [&](Eight(&x)[R], int64_t at, int inside, int batch) {
      const int row = row_of(batch);
      const T* const from = static_cast<const T*>(a.x) + at + int64_t(row) * s.n;
#pragma unroll
      for (int r = 0; r < R; ++r) x[r] = load_if(row + r < inside, from + int64_t(r) * s.n);
    };
    const unsigned char* const result = memory + Tile::result_at + lane / 8 * (Tile::rows * 128);
    auto load_y = [&](Eight(&y)[R], int batch) {
#pragma unroll
      for (int r = 0; r < R; ++r)
        y[r] = *reinterpret_cast<const Eight*>(result + swizzled(row_of(batch) + r, lane % 8));
    };
    // Work without y: slopes, and gelu(x) to memory.
    auto slopes_of = [&](float(&slope)[8 * R], const Eight(&x)[R], int64_t at, int inside, int batch) {
      const int row = row_of(batch);
      T* const second = static_cast<T*>(a.second) + at + int64_t(row) * s.n;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        Eight g;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float g0, g1;
          slope[8 * r + 2 * i] = gelu_and_slope(low_half<T>(x[r].word[i]), g0);
          slope[8 * r + 2 * i + 1] = gelu_and_slope(high_half<T>(x[r].word[i]), g1);
          g.word[i] = pack<T>(g0, g1);
        }
        store_if(row + r < inside && a.second, second + int64_t(r) * s.n, g);
      }
    };
    float sum[8] = {};
    auto finish = [&](const Eight(&y)[R], const float(&slope)[8 * R], const Rows& tile, int batch) {
      const int row = row_of(batch);
      T* const c = static_cast<T*>(a.c) + tile.at + int64_t(row) * s.n;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        Eight f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float d0 = low_half<T>(y[r].word[i]) * slope[8 * r + 2 * i];
          const float d1 = high_half<T>(y[r].word[i]) * slope[8 * r + 2 * i + 1];
          sum[2 * i] += d0, sum[2 * i + 1] += d1;
          f.word[i] = pack<T>(d0, d1);
        }
        store_if(row + r < tile.inside, c + int64_t(r) * s.n, f);
      }
    };
    // The sums of a tile, alternating between two places: a fast warp writes the next tile's
    // meanwhile.
    auto add_up = [&](const GemmPlace& place, int turn) {
      float* const all = reinterpret_cast<float*>(memory + Tile::sums_at) + turn * W * Tile::columns;
      float* const own = all + warp * Tile::columns + 8 * lane;
      store_floats<4>(own, {sum[0], sum[1], sum[2], sum[3]});
      store_floats<4>(own + 4, {sum[4], sum[5], sum[6], sum[7]});
#pragma unroll
      for (float& x : sum) x = 0;
      named_sync(1, 32 * W);
#pragma unroll
      for (int i = 32 * warp + lane; i < Tile::columns; i += 32 * W) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < W; ++w) total += all[w * Tile::columns + i];
        const int j = place.column * Tile::columns + i;
        if (j < s.n) a.partial[int64_t(place.row) * s.n + j] = total;
      }
    };

    Rows now = rows_of(first_item);
    Eight x[ring][R] = {}, y[2][R];
    float slope[2][8 * R];
#pragma unroll
    for (int i = 0; i < ring; ++i) load_x(x[i], now.at, now.inside, i);
    slopes_of(slope[0], x[0], now.at, now.inside, 0);
    int parity = 0;
    for (int item = first_item; item < items; item += step, parity ^= 1) {
      const Rows next = rows_of(item + step);
#pragma unroll 1
      for (int first = 0; first < batches; first += ring) {
        if (first % (batches / 2) == 0) {
          const int half = first / (batches / 2);
          barrier_wait(result_full(half), uint32_t(parity));
          load_y(y[0], first);
        }
        const bool last = (first + ring) % (batches / 2) == 0;  // of the half
#pragma unroll
        for (int i = 0; i < ring; ++i) {
          const int batch = first + i;
          // The batch so many further on, of this tile or the next.
          auto ahead = [&](int by, auto use) {
            const bool over = batch + by >= batches;
            use(over ? next.at : now.at, over ? next.inside : now.inside, over ? batch + by - batches : batch + by);
          };
          if (i + 1 < ring || !last) load_y(y[(i + 1) % 2], batch + 1);
          ahead(ring, [&](int64_t at, int inside, int index) { load_x(x[i], at, inside, index); });
          ahead(1, [&](int64_t at, int inside, int index) {
            slopes_of(slope[(i + 1) % 2], x[(i + 1) % ring], at, inside, index);
          });
          finish(y[i % 2], slope[i % 2], now, batch);
        }
        if (last) {
          sync_warp();
          if (lane == 0) barrier_arrive(result_empty(first / (batches / 2)));
        }
      }
      add_up(now.place, parity);
      now = next;
    }
  } else {  // multiplications
    const int w = warp / 4 - 1;
    const uint32_t matrix =
        base + Tile::result_at + swizzled(64 * w + 16 * (warp % 4) + lane % 16, lane / 16);  // as in store_matrices
    int stage = 0, parity = 0, tile_parity = 0;
    float d[Tile::columns / 2];

    // A thread requests operands, stages ahead of the multiplications and on into the next tile.
    int load_item = first_item, load_k = 0, load_stage = 0, load_parity = 1;
    GemmPlace load_at = gemm_place(s, min(first_item, items - 1));
    auto load = [&] {
      if (warp != 8 || load_item >= items) return;
      if (lane == 0) {
        barrier_wait(empty(load_stage), uint32_t(load_parity));
        barrier_arrive_expect(full(load_stage), Tile::stage_bytes);
        const uint32_t to = base + uint32_t(load_stage * Tile::stage_bytes);
        const int k = load_k * Tile::depth, row = load_at.row * Tile::rows, column = load_at.column * Tile::columns;
#pragma unroll
        for (int r = 0; r < Tile::a_boxes; ++r)
          tensor_load(to + uint32_t(r * Tile::box_bytes), &a.a, k, row + 64 * r, 0, full(load_stage));
#pragma unroll
        for (int j = 0; j < Tile::b_boxes; ++j)
          tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), &a.b, column + 64 * j, k, 0, full(load_stage));
        if (load_k == 0) {  // x to the second-level cache
#pragma unroll
          for (int box = 0; box < Tile::a_boxes * Tile::b_boxes; ++box)
            tensor_prefetch(&a.x_map, column + box % Tile::b_boxes * 64, row + box / Tile::b_boxes * 64, 0);
        }
      }
      sync_warp();
      if (++load_stage == S) load_stage = 0, load_parity ^= 1;
      if (++load_k == k_steps) load_k = 0, load_item += step, load_at = gemm_place(s, min(load_item, items - 1));
    };
    for (int i = 0; i < S; ++i) load();

    auto release = [&](int i) {  // of a stage; the next operands may come there
      if (lane == 0) barrier_arrive(empty(i));
      load();
    };
    auto next_stage = [&] {
      if (++stage == S) stage = 0, parity ^= 1;
    };
    auto multiply = [&](auto zero) {
      barrier_wait(full(stage), uint32_t(parity));
      const uint32_t at = base + uint32_t(stage * Tile::stage_bytes);
      const uint64_t x = operand(at + uint32_t(w * Tile::box_bytes));
      const uint64_t y = operand(at + Tile::b_at, Tile::box_bytes);
      constexpr int dx = 32 >> 4, dy = 2048 >> 4;
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
        next_stage();
        multiply(std::false_type());
        wgmma_wait<1>();
        release(before);
      }
      wgmma_wait<0>();
      pin(d);
      release(stage);
      next_stage();
      barrier_wait(result_empty(w), uint32_t(tile_parity ^ 1));
#pragma unroll
      for (int j = 0; j < Tile::columns / 16; ++j)
        store_matrices((matrix ^ uint32_t(j % 4 * 32)) + uint32_t(j / 4 * Tile::rows * 128),
                       pack<T>(d[8 * j], d[8 * j + 1]), pack<T>(d[8 * j + 2], d[8 * j + 3]),
                       pack<T>(d[8 * j + 4], d[8 * j + 5]), pack<T>(d[8 * j + 6], d[8 * j + 7]));
      sync_warp();
      if (lane == 0) barrier_arrive(result_full(w));
    }
  }
#endif
}

// The rows of `partial`.
inline int64_t gelu_grad_row_tiles(int64_t m) {
  constexpr int rows = GeluGradTile<bfloat16>::rows;
  return (m + rows - 1) / rows;
}

// As start_gemm().
template <class T>
int start_gelu_grad(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks,
                    const LaunchOn& on) {
  constexpr int largest_shallow = 1024;  // measured on an H200: docs/results/h200/epilogues.md
  if (k <= largest_shallow)
    return start_gemm<ShallowTile<T>>(shallow_kernel<ShallowTile<T>>, call, m, n, k, group, encode, blocks, on);
  return start_gemm<DeepTile<T>>(deep_kernel<DeepTile<T>>, call, m, n, k, group, encode, blocks, on);
}
template <class T>
int start_swiglu_grad(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks,
                      const LaunchOn& on) {
  using Tile = DeepTile<T, true>;
  return start_gemm<Tile>(deep_kernel<Tile>, call, m, n, k, group, encode, blocks, on);
}

}  // namespace crest::cuda::sm90
