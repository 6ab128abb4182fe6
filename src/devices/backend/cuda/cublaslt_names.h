// What the numbers of cuBLASLt's algorithm attributes mean. The header has one enumerator for each
// of 634 tiles; they follow rules, which are used here.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace crest::cuda {

// Rows and columns of the tile with a cublasLtMatmulTile_t; {0, 0}: a number that is not known
// (newer libraries have more).
std::pair<int, int> tile_of(uint32_t id);
// "64x4": depth of a stage and number of stages; "" for a number that is not known or not set.
std::string stages_of(uint32_t id);
// "2x1x1"; "" for a number that is not known or left to the library.
std::string cluster_of(uint32_t id);

}  // namespace crest::cuda
