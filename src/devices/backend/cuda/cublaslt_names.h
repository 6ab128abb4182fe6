// Meanings of the numbers of cuBLASLt's algorithm attributes. The header has one enumerator for
// each of 634 tiles; they follow rules, used here.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace crest::cuda {

// Rows and columns of the tile with a cublasLtMatmulTile_t; {0, 0}: an unknown number (newer
// libraries have more).
std::pair<int, int> tile_of(uint32_t id);
// "64x4": depth of a stage and number of stages; "" for an unknown or unset number.
std::string stages_of(uint32_t id);
// "2x1x1"; "" for an unknown number or the library's choice.
std::string cluster_of(uint32_t id);

}  // namespace crest::cuda
