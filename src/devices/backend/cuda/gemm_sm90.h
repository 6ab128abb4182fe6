// Shared by GEMMs of 16-bit floats for compute capability 9.0 (gemm_sm90_pingpong.h,
// gemm_sm90_gelu_grad.h, gemm_sm90_weight.h): a block computes tiles, one after another, and
// pointwise work on a tile runs alongside the multiplications of the next one.
//
// The order of all additions depends on the sizes only.
#pragma once
#include "backend/cuda/attention_sm90.h"
#include "backend/cuda/device/activation.h"
#include "backend/cuda/launch.h"

namespace crest::cuda::sm90 {

// 8 numbers.
struct alignas(16) Eight {
  uint32_t word[4];
};
// Written in PTX: nvcc 13.0 makes some of these stores pieces of two and four bytes, and a branch
// of each condition.
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

struct GemmSizes {
  int m, n, k;
  int pitch;  // as GemmCall's
  int group;  // row tiles in one group, computed column by column
  int row_tiles, column_tiles;
};

struct GemmArgs {
  CUtensorMap a, b, x_map;
  CUtensorMap a_2, b_2;  // of a second product, or of a second part of b
  GemmSizes s;
  const void *x, *x_2, *bias;
  void *c, *second, *third;
  float* partial;
};

// Where the tile with this place in the list is, in tiles.
struct GemmPlace {
  int row, column;
};
__device__ inline GemmPlace gemm_place(const GemmSizes& s, int item) {
  int all = s.group * s.column_tiles, group = item / all, rest = item - group * all;
  int height = min(s.group, s.row_tiles - group * s.group), column = rest / height;
  return {group * s.group + rest - column * height, column};
}

// Addresses of a GEMM c[m, n] = a b with pointwise work; unused ones are null.
struct GemmCall {
  const void *a = nullptr, *b = nullptr, *x = nullptr, *bias = nullptr;
  void *c = nullptr, *second = nullptr;
  float* partial = nullptr;
  int pitch = 0;    // elements from row to row of c and second, of the ping-pong kernel; 0: n
  int a_pitch = 0;  // elements from row to row of a; 0: k (m with Tile::AT)
  const void *a_2 = nullptr, *b_2 = nullptr, *x_2 = nullptr;
  void* third = nullptr;
};

// blocks: the number running at a time; group: row tiles computed together, or fewer. Operands are
// aligned to 16 bytes; m (with Tile::AT), n and k are multiples of 8. With a pitch in multiples of
// 8, n may be any size unless Tile::BT; then up to 7 elements behind a row are written too. With
// such an a_pitch, k may be any size if Tile::BT and not Tile::AT. Tile::span is the number of
// columns of c in a tile. Returns a cudaError_t.
template <class Tile>
int start_gemm(void (*kernel)(GemmArgs), const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode,
               int blocks, const LaunchOn& on) {
  constexpr bool bf16 = std::is_same_v<typename Tile::T, bfloat16>;
  GemmArgs a;
  a.x = call.x, a.x_2 = call.x_2, a.bias = call.bias;
  a.c = call.c, a.second = call.second, a.third = call.third, a.partial = call.partial;
  const int rows = (m + Tile::rows - 1) / Tile::rows, columns = (n + Tile::span - 1) / Tile::span;
  a.s = {m, n, k, call.pitch ? call.pitch : n, group < rows ? group : rows, rows, columns};
  auto map_a = [&](CUtensorMap* map, const void* from) {
    return rows_map(map, encode, from, bf16, 1, Tile::AT ? k : m, Tile::AT ? m : k, call.a_pitch);
  };
  auto map_b = [&](CUtensorMap* map, const void* from) {
    return rows_map(map, encode, from, bf16, 1, Tile::BT ? k : n, Tile::BT ? n : k, 0, Tile::b_box_rows);
  };
  if (!map_a(&a.a, call.a) || !map_b(&a.b, call.b) || (call.a_2 && !map_a(&a.a_2, call.a_2)) ||
      (call.b_2 && !map_b(&a.b_2, call.b_2)) ||
      (Tile::prefetches_x && !rows_map(&a.x_map, encode, call.x, bf16, 1, m, n)))
    return 1;
  const auto grid = unsigned(blocks < rows * columns ? blocks : rows * columns);
#ifdef __CUDACC__
  return start_kernel(on, kernel, grid, Tile::threads, Tile::shared_bytes, a);
#else
  (void)on;
  emulated::run(grid, Tile::threads, Tile::shared_bytes, [&] { kernel(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
