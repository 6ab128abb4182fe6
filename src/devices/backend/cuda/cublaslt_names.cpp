#include "backend/cuda/cublaslt_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#if CREST_HAVE_CUDA
#include <cublasLt.h>
#endif

namespace crest::cuda {

namespace {

using Tile = std::pair<int, int>;

// By number, from 1. The first ones have the order of their introduction; then come tiles of rows
// in steps of 8 by columns in steps of 64, then the other way round.
std::vector<Tile> all_tiles() {
  std::vector<Tile> tiles = {{8, 8},     {8, 16},    {16, 8},    {8, 32},    {16, 16},  {32, 8},    {8, 64},
                             {16, 32},   {32, 16},   {64, 8},    {32, 32},   {32, 64},  {64, 32},   {32, 128},
                             {64, 64},   {128, 32},  {64, 128},  {128, 64},  {64, 256}, {128, 128}, {256, 64},
                             {64, 512},  {128, 256}, {256, 128}, {512, 64},  {64, 96},  {96, 64},   {96, 128},
                             {128, 160}, {160, 128}, {192, 128}, {128, 192}, {128, 96}, {32, 256},  {256, 32}};
  auto add = [&](int rows, int columns, int most) {
    if (rows * columns <= most && std::find(tiles.begin(), tiles.end(), Tile(rows, columns)) == tiles.end())
      tiles.emplace_back(rows, columns);
  };
  for (int rows = 8; rows <= 768; rows += 8)
    for (int columns = 64; columns <= 768; columns += 64) add(rows, columns, 49152);
  for (int rows = 64; rows <= 768; rows += 64)
    for (int columns = 8; columns <= 768; columns += 8) add(rows, columns, 65536);
  for (Tile t : {Tile{256, 512}, {256, 1024}, {512, 512}, {512, 1024}}) tiles.push_back(t);
  return tiles;
}

}  // namespace

std::pair<int, int> tile_of(uint32_t id) {
  static const std::vector<Tile> tiles = all_tiles();
  return id >= 1 && id <= tiles.size() ? tiles[id - 1] : Tile{0, 0};
}

std::string stages_of(uint32_t id) {
  static constexpr const char* names[] = {
      "",      "16x1",  "16x2",   "16x3",    "16x4",    "16x5",    "16x6",     "32x1",     "32x2",    "32x3",
      "32x4",  "32x5",  "32x6",   "64x1",    "64x2",    "64x3",    "64x4",     "64x5",     "64x6",    "128x1",
      "128x2", "128x3", "128x4",  "128x5",   "128x6",   "32x10",   "8x4",      "16x10",    "8x5",     "",
      "",      "8x3",   "8xauto", "16xauto", "32xauto", "64xauto", "128xauto", "256xauto", "768xauto"};
  return id < std::size(names) ? names[id] : "";
}

std::string cluster_of(uint32_t id) {
  static constexpr std::pair<int, int> shapes[] = {
      {1, 1},  {2, 1},  {4, 1}, {1, 2}, {2, 2}, {4, 2},  {1, 4},  {2, 4},  {4, 4},  {8, 1},  {1, 8},  {8, 2},  {2, 8},
      {16, 1}, {1, 16}, {3, 1}, {5, 1}, {6, 1}, {7, 1},  {9, 1},  {10, 1}, {11, 1}, {12, 1}, {13, 1}, {14, 1}, {15, 1},
      {3, 2},  {5, 2},  {6, 2}, {7, 2}, {1, 3}, {2, 3},  {3, 3},  {4, 3},  {5, 3},  {3, 4},  {1, 5},  {2, 5},  {3, 5},
      {1, 6},  {2, 6},  {1, 7}, {2, 7}, {1, 9}, {1, 10}, {1, 11}, {1, 12}, {1, 13}, {1, 14}, {1, 15}};
  if (id < 2 || id - 2 >= std::size(shapes)) return "";
  return fmt::format("{}x{}x1", shapes[id - 2].first, shapes[id - 2].second);
}

#if CREST_HAVE_CUDA
static_assert(CUBLASLT_MATMUL_TILE_256x32 == 35 && CUBLASLT_MATMUL_TILE_128x256 == 23);
static_assert(CUBLASLT_CLUSTER_SHAPE_1x1x1 == 2 && CUBLASLT_CLUSTER_SHAPE_1x16x1 == 16);
static_assert(CUBLASLT_MATMUL_STAGES_8x3 == 31 && CUBLASLT_MATMUL_STAGES_64xAUTO == 35);
#if CUBLAS_VER_MAJOR >= 13
static_assert(CUBLASLT_MATMUL_TILE_768x64 == 311 && CUBLASLT_MATMUL_TILE_768x80 == 630);
#endif
#endif

}  // namespace crest::cuda
