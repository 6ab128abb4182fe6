// Matrix products of 16-bit floats for compute capability 9.0. Pointwise work runs alongside the products of the next
// tile.
//
// A block goes over tiles of 128 x 256 of the result. Warpgroups 1 and 2 multiply, 64 rows each, leave their part of
// the tile rounded to 16 bits in shared memory and go on at once; a thread of the second one asks for operands by TMA
// as soon as a stage is free. Warpgroup 0 takes the tile from there. A warp of it has whole rows and a lane 8 columns:
// what it reads and writes of device memory are full lines, and sums over rows stay in registers. It is the only such
// warp of its scheduler, so that nothing but its own instructions hides their latency: it works on 16 results at a
// time, the special functions of the next 16 among the rest of these, and asks for x three such steps ahead.
//
// Between two tiles nobody would feed the tensor cores while accumulators are moved to shared memory. So the last and
// the first products of a tile are split into halves of 128 columns: one half is moved while the other is multiplied.
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

__device__ inline Eight load_if(bool condition, const void* from) {
  Eight x = {};
#ifdef __CUDACC__
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%5];}\n"
      : "+r"(x.word[0]), "+r"(x.word[1]), "+r"(x.word[2]), "+r"(x.word[3])
      : "r"(int(condition)), "l"(from));
#else
  if (condition) x = *static_cast<const Eight*>(from);
#endif
  return x;
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
  CUtensorMap a, b, x_map;
  GemmSizes s;
  const void *x, *bias;
  void *c, *second;
  float* partial;  // gelu_grad: [row tiles, n], the sums over the rows of a tile
};

// How the accumulators of a tile make room for those of the next.
enum class Turnover {
  whole,  // all at once
  lag,    // all at once, but the second warpgroup a step behind the first
  split   // by halves of the columns
};

// AT: a is [k, m] in memory, else [m, k]. BT: b is [k, n], else [n, k].
template <class T_, After after_, bool AT_, bool BT_, Turnover turnover_ = Turnover::split>
struct GemmTile {
  using T = T_;
  static constexpr After after = after_;
  static constexpr Turnover turnover = turnover_;
  static constexpr bool AT = AT_, BT = BT_, has_bias = after == After::bias || after == After::bias_gelu;
  static constexpr bool has_second = after == After::bias_gelu || after == After::gelu_grad;
  static constexpr bool reads_x = after == After::gelu_grad || after == After::add, sums = after == After::gelu_grad;
  static constexpr int rows = 128, columns = 256, depth = 64, stages = 3;
  static constexpr int threads = 384, after_warps = 4, batch = 2;  // rows that a warp of them works on at a time
  static constexpr int box_bytes = 64 * 64 * 2, a_boxes = rows / 64, b_boxes = columns / 64;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * box_bytes, b_at = a_boxes * box_bytes;
  static constexpr int result_at = stages * stage_bytes, result_bytes = rows * columns * 2;
  static constexpr int sums_at = result_at + result_bytes, sums_bytes = sums ? 2 * after_warps * columns * 4 : 0;
  static constexpr int bias_at = sums_at + sums_bytes, bias_bytes = has_bias ? columns * 4 : 0;
  static constexpr int barriers_at = bias_at + bias_bytes, barriers = 2 * stages + 6;
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
__global__ void __launch_bounds__(Tile::threads, 1) gemm_kernel(const __grid_constant__ GemmArgs a) {
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
  const uint32_t bias_full = barrier(2 * S + 4), bias_empty = barrier(2 * S + 5);

  const int warp = warp_index(), lane = thread_index() % 32;
  if (thread_index() == 0) {
    for (int i = 0; i < S; ++i) barrier_init(full(i), 1), barrier_init(empty(i), 8);
    for (int i = 0; i < 2; ++i) barrier_init(result_full(i), 4), barrier_init(result_empty(i), Tile::after_warps);
    barrier_init(bias_full, 1), barrier_init(bias_empty, 8);
    barrier_init_fence();
  }
  sync_block();

  const int items = s.row_tiles * s.column_tiles, step = block_count(), first_item = block_index();
  // The first and the last step of a tile are different ones; zeros are outside of the operands.
  const int k_steps = max(2, (s.k + Tile::depth - 1) / Tile::depth);

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
    [[maybe_unused]] auto load_x = [&](Eight(&x)[R], int64_t at, int inside, int batch) {
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
    [[maybe_unused]] auto pass_bias = [&](int item, int parity) {  // of a tile, to those who multiply
      if (warp != 0 || item >= items) return;
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
    // gelu_grad, what needs no y: slopes, and gelu(x) to memory.
    [[maybe_unused]] auto slopes_of = [&](float(&slope)[8 * R], const Eight(&x)[R], int64_t at, int inside, int batch) {
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
    [[maybe_unused]] float sum[8] = {};
    auto finish = [&](const Eight(&y)[R], [[maybe_unused]] const Eight(&x)[R],
                      [[maybe_unused]] const float(&slope)[8 * R], const Rows& tile, int batch) {
      const int row = row_of(batch);
      const int64_t at = tile.at + int64_t(row) * s.n;
      T *const c = static_cast<T*>(a.c) + at, *const second = static_cast<T*>(a.second) + at;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        Eight f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t both = y[r].word[i];
          const float low = low_half<T>(both), high = high_half<T>(both);
          if constexpr (Tile::after == After::bias_gelu) {
            f.word[i] = pack<T>(gelu(low), gelu(high));
          } else if constexpr (Tile::after == After::add) {
            f.word[i] = pack<T>(low + low_half<T>(x[r].word[i]), high + high_half<T>(x[r].word[i]));
          } else if constexpr (Tile::after == After::gelu_grad) {
            const float d0 = low * slope[8 * r + 2 * i], d1 = high * slope[8 * r + 2 * i + 1];
            sum[2 * i] += d0, sum[2 * i + 1] += d1;
            f.word[i] = pack<T>(d0, d1);
          } else {
            f.word[i] = both;
          }
        }
        store_if(row + r < tile.inside, c + int64_t(r) * s.n, f);
        if constexpr (Tile::after == After::bias_gelu)
          store_if(row + r < tile.inside && a.second, second + int64_t(r) * s.n, y[r]);
      }
    };
    // The sums of a tile, alternating between two places: a fast warp writes those of the next tile meanwhile.
    [[maybe_unused]] auto add_up = [&](const GemmPlace& place, int turn) {
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
    [[maybe_unused]] float slope[2][8 * R];
    if constexpr (Tile::has_bias) pass_bias(first_item, 1);
    if constexpr (Tile::reads_x) {
#pragma unroll
      for (int i = 0; i < ring; ++i) load_x(x[i], now.at, now.inside, i);
    }
    if constexpr (Tile::sums) slopes_of(slope[0], x[0], now.at, now.inside, 0);
    int parity = 0;
    for (int item = first_item; item < items; item += step, parity ^= 1) {
      const Rows next = rows_of(item + step);
#pragma unroll 1
      for (int first = 0; first < batches; first += ring) {
        if (first % (batches / 2) == 0) {
          const int half = first / (batches / 2);
          barrier_wait(result_full(half), uint32_t(parity));
          if constexpr (Tile::has_bias)
            if (half == 1) pass_bias(item + step, parity);
          load_y(y[0], first);
        }
        const bool last = (first + ring) % (batches / 2) == 0;  // of the half
#pragma unroll
        for (int i = 0; i < ring; ++i) {
          const int batch = first + i;
          // The batch that many further on, of this tile or the next.
          [[maybe_unused]] auto ahead = [&](int by, auto use) {
            const bool over = batch + by >= batches;
            use(over ? next.at : now.at, over ? next.inside : now.inside, over ? batch + by - batches : batch + by);
          };
          if (i + 1 < ring || !last) load_y(y[(i + 1) % 2], batch + 1);
          Eight with[R];
#pragma unroll
          for (int r = 0; r < R; ++r) with[r] = x[i][r];
          if constexpr (Tile::reads_x)
            ahead(ring, [&](int64_t at, int inside, int index) { load_x(x[i], at, inside, index); });
          if constexpr (Tile::sums)
            ahead(1, [&](int64_t at, int inside, int index) {
              slopes_of(slope[(i + 1) % 2], x[(i + 1) % ring], at, inside, index);
            });
          finish(y[i % 2], with, slope[i % 2], now, batch);
        }
        if (last) {
          sync_warp();
          if (lane == 0) barrier_arrive(result_empty(first / (batches / 2)));
        }
      }
      if constexpr (Tile::sums) add_up(now.place, parity);
      now = next;
    }
  } else {  // products
    constexpr bool split = Tile::turnover == Turnover::split;
    constexpr int H = Tile::columns / 2;
    const int w = warp / 4 - 1, t = lane % 4;
    const uint32_t matrix =
        base + Tile::result_at + swizzled(64 * w + 16 * (warp % 4) + lane % 16, lane / 16);  // as in store_matrices
    int stage = 0, parity = 0, tile_parity = 0;
    float d[Tile::columns / 2];
    auto& left = reinterpret_cast<float(&)[H / 2]>(d);  // columns
    auto& right = reinterpret_cast<float(&)[H / 2]>(d[H / 2]);

    // A thread asks for operands, stages ahead of the products and on into the next tile.
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
          tensor_load(to + uint32_t(r * Tile::box_bytes), &a.a, Tile::AT ? row + 64 * r : k,
                      Tile::AT ? k : row + 64 * r, 0, full(load_stage));
#pragma unroll
        for (int j = 0; j < Tile::b_boxes; ++j)
          tensor_load(to + uint32_t(Tile::b_at + j * Tile::box_bytes), &a.b, Tile::BT ? column + 64 * j : k,
                      Tile::BT ? k : column + 64 * j, 0, full(load_stage));
        if constexpr (Tile::reads_x)  // to the second-level cache
          if (load_k == 0) {
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
    auto wait_operands = [&] { barrier_wait(full(stage), uint32_t(parity)); };
    auto next_stage = [&] {
      if (++stage == S) stage = 0, parity ^= 1;
    };
    // The products of a stage for N columns of the tile from `from` on, as a group. zero: they are its first.
    auto multiply = [&](auto& to, auto from, auto zero) {
      constexpr int N = int(sizeof to / sizeof to[0]) * 2;
      const uint32_t at = base + uint32_t(stage * Tile::stage_bytes);
      const uint64_t x = operand(at + uint32_t(w * Tile::box_bytes));
      const uint64_t y = operand(at + Tile::b_at + from() * 128, Tile::BT ? Tile::box_bytes : 0);
      constexpr int dx = (Tile::AT ? 2048 : 32) >> 4, dy = (Tile::BT ? 2048 : 32) >> 4;
      wgmma_fence();
      wgmma<T, N, Tile::AT, Tile::BT, zero()>(to, x, y, !zero());
#pragma unroll
      for (int i = 1; i < Tile::depth / 16; ++i)
        wgmma<T, N, Tile::AT, Tile::BT>(to, x + uint64_t(i * dx), y + uint64_t(i * dy), 1);
      wgmma_commit();
    };
    // Accumulators of columns from `from` on to shared memory. They keep their values: products are about to use them.
    auto move = [&](auto& of, auto from) {
      constexpr int N = int(sizeof of / sizeof of[0]) * 2;
      [[maybe_unused]] const float2* bias = reinterpret_cast<const float2*>(memory + Tile::bias_at) + from() / 2 + t;
#pragma unroll
      for (int j = 0; j < N / 16; ++j) {
        uint32_t words[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {  // rows and the next 8, then the same of the next 8 columns
          float low = of[8 * j + 2 * e], high = of[8 * j + 2 * e + 1];
          if constexpr (Tile::has_bias) low += bias[8 * j + e / 2 * 4].x, high += bias[8 * j + e / 2 * 4].y;
          words[e] = pack<T>(low, high);
        }
        store_matrices((matrix ^ uint32_t(j % 4 * 32)) + uint32_t((from() / 64 + j / 4) * Tile::rows * 128), words[0],
                       words[1], words[2], words[3]);
      }
    };
    auto wait_result = [&] {
      if constexpr (Tile::has_bias) barrier_wait(bias_full, uint32_t(tile_parity));
      barrier_wait(result_empty(w), uint32_t(tile_parity ^ 1));
    };
    auto pass_result = [&] {
      sync_warp();
      if (lane == 0) {
        if constexpr (Tile::has_bias) barrier_arrive(bias_empty);
        barrier_arrive(result_full(w));
      }
      tile_parity ^= 1;
    };
    constexpr std::integral_constant<int, 0> from_left;
    constexpr std::integral_constant<int, H> from_right;
    constexpr std::true_type first;
    constexpr std::false_type later;

    if constexpr (split) {
      wait_operands();
      multiply(left, from_left, first), multiply(right, from_right, first);
      for (int item = first_item;;) {
        for (int i = 1; i + 1 < k_steps; ++i) {
          const int before = stage;
          next_stage();
          wait_operands();
          multiply(left, from_left, later), multiply(right, from_right, later);
          wgmma_wait<2>();
          release(before);
        }
        const int before = stage;
        next_stage();
        wait_operands();
        multiply(left, from_left, later), multiply(right, from_right, later);
        wgmma_wait<2>();
        release(before);
        wgmma_wait<1>();
        pin(left);
        wait_result();
        move(left, from_left);
        const int last = stage;
        next_stage();
        if ((item += step) < items) wait_operands();
        multiply(left, from_left, first);
        wgmma_wait<1>();
        pin(right);
        release(last);
        move(right, from_right);
        multiply(right, from_right, first);
        pass_result();
        if (item >= items) break;
      }
      wgmma_wait<0>();
    } else {
      const bool lag = Tile::turnover == Turnover::lag && k_steps > S;
      for (int item = first_item; item < items; item += step) {
        if (lag && w == 1) named_sync(2, 256);
        wait_operands();
        multiply(d, from_left, first);
        for (int i = 1; i < k_steps; ++i) {
          const int before = stage;
          next_stage();
          wait_operands();
          multiply(d, from_left, later);
          wgmma_wait<1>();
          release(before);
          if (lag && w == 0 && i == 1) named_arrive(2, 256);
        }
        wgmma_wait<0>();
        pin(d);
        release(stage);
        next_stage();
        wait_result();
        move(d, from_left);
        pass_result();
      }
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
int start_gemm(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks, void* stream) {
  constexpr bool bf16 = std::is_same_v<typename Tile::T, bfloat16>;
  GemmArgs a;
  a.x = call.x, a.bias = call.bias, a.c = call.c, a.second = call.second, a.partial = call.partial;
  const int row_tiles = (m + Tile::rows - 1) / Tile::rows, column_tiles = (n + Tile::columns - 1) / Tile::columns;
  a.s = {m, n, k, group < row_tiles ? group : row_tiles, row_tiles, column_tiles};
  if (!rows_map(&a.a, encode, call.a, bf16, 1, Tile::AT ? k : m, Tile::AT ? m : k) ||
      !rows_map(&a.b, encode, call.b, bf16, 1, Tile::BT ? k : n, Tile::BT ? n : k) ||
      (Tile::reads_x && !rows_map(&a.x_map, encode, call.x, bf16, 1, m, n)))
    return 1;
  const auto grid = unsigned(blocks < row_tiles * column_tiles ? blocks : row_tiles * column_tiles);
#ifdef __CUDACC__
  cudaError_t code =
      cudaFuncSetAttribute(gemm_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::shared_bytes);
  if (code != cudaSuccess) return code;
  gemm_kernel<Tile><<<grid, Tile::threads, Tile::shared_bytes, static_cast<cudaStream_t>(stream)>>>(a);
  return cudaGetLastError();
#else
  (void)stream;
  emulated::run(grid, Tile::threads, Tile::shared_bytes, [&] { gemm_kernel<Tile>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
