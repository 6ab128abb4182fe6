// A GEMM with pointwise work for compute capability 9.0 ("ping-pong"): two warpgroups take turns.
// One multiplies a whole tile of 128 x 192 while the other does the pointwise work of its own tile
// before. A warp of the third warpgroup loads operands by TMA.
#pragma once
#include "backend/cuda/gemm_sm90.h"

namespace crest::cuda::sm90 {

// The work on y = a b.
enum class After {
  plain,      // c = y
  bias,       // c = y + bias
  bias_gelu,  // h = y + bias, second = h (may be absent), c = gelu(h rounded to the type of c)
  swiglu      // g = a b, u = a b_2, both rounded; second = g, third = u (may be absent), c = silu(g) u
};

// AT: a is [k, m] in memory, else [m, k]. BT: b is [k, n], else [n, k]. products: with 2, y = a b +
// a_2 b_2. A tile of SwiGLU has the same columns of g and of u.
template <class T_, After after_, bool AT_, bool BT_, int products_ = 1>
struct PingPongTile {
  using T = T_;
  static constexpr After after = after_;
  static constexpr bool AT = AT_, BT = BT_, prefetches_x = false;
  static constexpr bool has_bias = after == After::bias || after == After::bias_gelu;
  static constexpr int products = products_, parts = after == After::swiglu ? 2 : 1;
  static constexpr int rows = 128, columns = 192, depth = 64, stages = 4, threads = 384, span = columns / parts;
  static constexpr int b_box_rows = parts == 2 ? 32 : 64;
  static constexpr int box_bytes = 64 * 64 * 2, a_boxes = rows / 64, b_boxes = columns / 64;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * box_bytes, b_at = a_boxes * box_bytes;
  static constexpr int result_at = stages * stage_bytes, result_bytes = rows * columns * 2;
  static constexpr int bias_at = result_at + result_bytes, bias_bytes = has_bias ? 2 * columns * 4 : 0;
  static constexpr int barriers_at = bias_at + bias_bytes, barriers = 2 * stages + 2;
  static constexpr int shared_bytes = barriers_at + 8 * barriers + 1024;
  static_assert(shared_bytes <= 232448);
  static_assert(parts == 1 || (!AT && !BT && products == 1));
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) pingpong_kernel(const __grid_constant__ GemmArgs a) {
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
  const uint32_t result_empty = barrier(2 * S), operands_here = barrier(2 * S + 1);

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 4);
    barrier_init(result_empty, 4), barrier_init(operands_here, 4);
    barrier_init_fence();
  }
  sync_block();
  wait_for_predecessors();

  const int items = s.row_tiles * s.column_tiles, step = block_count(), first_item = block_index();
  const int steps_of_one = (s.k + Tile::depth - 1) / Tile::depth, k_steps = Tile::products * steps_of_one;

  if (warp < 4) {
    registers_give<24>();
    if (warp == 0 && lane == 0) {
      int stage = 0, parity = 1;
      for (int item = first_item; item < items; item += step) {
        const GemmPlace at = gemm_place(s, item);
        const int row = at.row * Tile::rows, column = at.column * Tile::span;
        for (int i = 0; i < k_steps; ++i) {
          barrier_wait(empty(stage), uint32_t(parity));
          barrier_arrive_expect(full(stage), Tile::stage_bytes);
          const uint32_t to = base + uint32_t(stage * Tile::stage_bytes);
          const bool second = Tile::products == 2 && i >= steps_of_one;
          const CUtensorMap *const a_map = second ? &a.a_2 : &a.a, *const b_map = second ? &a.b_2 : &a.b;
          const int k = (second ? i - steps_of_one : i) * Tile::depth;
#pragma unroll
          for (int r = 0; r < Tile::a_boxes; ++r)
            tensor_load(to + uint32_t(r * Tile::box_bytes), a_map, Tile::AT ? row + 64 * r : k,
                        Tile::AT ? k : row + 64 * r, 0, full(stage));
          if constexpr (Tile::parts == 2) {
            constexpr int boxes = Tile::span / Tile::b_box_rows, bytes = Tile::b_box_rows * 128;
#pragma unroll
            for (int j = 0; j < 2 * boxes; ++j)
              tensor_load(to + uint32_t(Tile::b_at + j * bytes), j < boxes ? &a.b : &a.b_2, k,
                          column + Tile::b_box_rows * (j % boxes), 0, full(stage));
          } else {
#pragma unroll
            for (int j = 0; j < Tile::b_boxes; ++j)
              tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), b_map, Tile::BT ? column + 64 * j : k,
                          Tile::BT ? k : column + 64 * j, 0, full(stage));
          }
          if (++stage == S) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    registers_take<240>();
    // Chunks of 8 columns of the result: 4 rows of a warp (8 of two parts) are 3 times 32.
    constexpr int chunks = Tile::span / 8, E = 3, group_rows = 4 * Tile::parts, groups = 32 / group_rows;
    static_assert(group_rows * chunks == 32 * E);
    const int w = warp / 4 - 1, slab = warp % 4, t = lane % 4;
    const uint32_t matrix = base + Tile::result_at + swizzled(16 * slab + lane % 16, lane / 16);
    auto row_of = [&](int group) { return group / (groups / 2) * 64 + 16 * slab + group % (groups / 2) * group_rows; };

    int stage = 0, parity = 0;
    auto skip = [&](int steps) {
      stage += steps;
      parity ^= stage / S & 1, stage %= S;
    };
    if (w == 1) skip(k_steps);
    float d[2][Tile::columns / 2];
    int turn = w;
    for (int item = first_item + w * step; item < items; item += 2 * step, turn += 2) {
      const GemmPlace place = gemm_place(s, item);
      const int row0 = place.row * Tile::rows, column0 = place.column * Tile::span;
      // All warps have arrived at the barriers of this warpgroup's tile before. So the barriers
      // that count turns are at most a phase behind.
      named_sync(1 + w, 128);
      if constexpr (Tile::has_bias) {
        float* const to = reinterpret_cast<float*>(memory + Tile::bias_at) + w * Tile::columns;
        for (int i = thread_index() % 128; i < Tile::columns; i += 128)
          to[i] = column0 + i < s.n ? widen(static_cast<const T*>(a.bias)[column0 + i]) : 0.f;
        named_sync(1 + w, 128);
      }
      auto multiply = [&](auto zero) {
        barrier_wait(full(stage), uint32_t(parity));
        const uint32_t at = base + uint32_t(stage * Tile::stage_bytes);
        const uint64_t x = operand(at), y = operand(at + Tile::b_at, Tile::BT ? Tile::box_bytes : 0);
        constexpr int dx = (Tile::AT ? 2048 : 32) >> 4, dy = (Tile::BT ? 2048 : 32) >> 4, half = Tile::box_bytes >> 4;
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < 2; ++h)
          wgmma<T, Tile::columns, Tile::AT, Tile::BT, zero()>(d[h], x + uint64_t(h * half), y, !zero());
#pragma unroll
        for (int i = 1; i < Tile::depth / 16; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            wgmma<T, Tile::columns, Tile::AT, Tile::BT>(d[h], x + uint64_t(h * half + i * dx), y + uint64_t(i * dy), 1);
        wgmma_commit();
      };
      auto release = [&](int i) {
        if (lane == 0) barrier_arrive(empty(i));
      };
      // The other warpgroup has all its operands: so each barrier of a stage is at most a phase
      // ahead.
      barrier_wait(operands_here, uint32_t((turn + 1) & 1));
      multiply(std::true_type());
      for (int i = 1; i < k_steps; ++i) {
        const int before = stage;
        skip(1);
        multiply(std::false_type());
        wgmma_wait<1>();
        release(before);
      }
      sync_warp();  // all lanes have seen the other warpgroup's arrival
      if (lane == 0) barrier_arrive(operands_here);
      wgmma_wait<0>();
      pin(d[0]), pin(d[1]);
      release(stage);
      skip(1 + k_steps);

      // A warp has rows 16 slab .. + 15 of each 64. Of the rows of a group a lane has chunk
      // (lane + 32 e). Computed anew for each tile: accumulators leave no registers for it.
      uint32_t mine[1] = {uint32_t(lane)};
      pin(mine);
      int row_in[E], column_in[E];
      int64_t at[E];
      bool inside[E];
#pragma unroll
      for (int e = 0; e < E; ++e)
        row_in[e] = (int(mine[0]) + 32 * e) / chunks, column_in[e] = (int(mine[0]) + 32 * e) % chunks * 8;
#pragma unroll
      for (int e = 0; e < E; ++e)
        at[e] = int64_t(row0 + row_in[e]) * s.pitch + column0 + column_in[e], inside[e] = column0 + column_in[e] < s.n;
      auto is_inside = [&](int group, int e) { return inside[e] && row0 + row_of(group) + row_in[e] < s.m; };
      barrier_wait(result_empty, uint32_t((turn + 1) & 1));
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int j = 0; j < Tile::columns / 16; ++j) {
          uint32_t words[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {  // rows and the next 8, then the same of the next 8 columns
            float low = d[h][8 * j + 2 * e], high = d[h][8 * j + 2 * e + 1];
            if constexpr (Tile::has_bias) {
              const float2 b = reinterpret_cast<const float2*>(
                  memory + Tile::bias_at)[w * Tile::columns / 2 + t + 8 * j + e / 2 * 4];
              low += b.x, high += b.y;
            }
            words[e] = pack<T>(low, high);
          }
          store_matrices((matrix ^ uint32_t(j % 4 * 32)) + uint32_t(j / 4 * Tile::rows * 128 + h * 64 * 128), words[0],
                         words[1], words[2], words[3]);
        }
      sync_warp();

      using Chunks = Eight[Tile::parts][E];
      auto load_y = [&](Chunks& y, int group) {
#pragma unroll
        for (int part = 0; part < Tile::parts; ++part)
#pragma unroll
          for (int e = 0; e < E; ++e) {
            const int column = column_in[e] + part * Tile::span;
            y[part][e] = *reinterpret_cast<const Eight*>(memory + Tile::result_at + column / 64 * (Tile::rows * 128) +
                                                         swizzled(row_of(group) + row_in[e], column / 8 % 8));
          }
      };
      auto finish = [&](const Chunks& y, int group) {
#pragma unroll
        for (int e = 0; e < E; ++e) {
          Eight f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t both = y[0][e].word[i];
            const float low = low_half<T>(both), high = high_half<T>(both);
            if constexpr (Tile::after == After::bias_gelu) {
              f.word[i] = pack<T>(gelu(low), gelu(high));
            } else if constexpr (Tile::after == After::swiglu) {
              const uint32_t up = y[1][e].word[i];
              f.word[i] = pack<T>(silu(low) * low_half<T>(up), silu(high) * high_half<T>(up));
            } else {
              f.word[i] = both;
            }
          }
          const int64_t to = at[e] + int64_t(row_of(group)) * s.pitch;
          store_if(is_inside(group, e), static_cast<T*>(a.c) + to, f);
          if constexpr (Tile::after == After::bias_gelu || Tile::after == After::swiglu)
            store_if(is_inside(group, e) && a.second, static_cast<T*>(a.second) + to, y[0][e]);
          if constexpr (Tile::after == After::swiglu)
            store_if(is_inside(group, e) && a.third, static_cast<T*>(a.third) + to, y[1][e]);
        }
      };
      Chunks y[2];
      load_y(y[0], 0);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        if (g + 1 < groups) load_y(y[(g + 1) % 2], g + 1);
        finish(y[g % 2], g);
      }
      sync_warp();
      if (lane == 0) barrier_arrive(result_empty);
    }
  }
#endif
}

template <class Tile>
int start_pingpong(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks,
                   const LaunchOn& on) {
  return start_gemm<Tile>(pingpong_kernel<Tile>, call, m, n, k, group, encode, blocks, on);
}

}  // namespace crest::cuda::sm90
