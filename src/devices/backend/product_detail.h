// The implementation of a matrix product: Crest's kernel, and a library's description of its own.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace crest {

struct ProductDetail {
  std::string kernel;              // Crest's: "cuda.linear.cublaslt"
  std::string algorithm;           // the library's: "algorithm 66, stages 64x4, cluster 2x1x1", "brg:avx512_core_bf16"
  std::string tile;                // of the result, computed by one thread block: "128x256" (m x n); "": unknown
  int64_t tile_m = 0, tile_n = 0;  // the same; 0: unknown
  std::optional<int64_t> requested_workspace;  // bytes used by the algorithm; absent: the library does not say
  int64_t reserved_workspace = 0;              // bytes kept for it by the plan
};

}  // namespace crest
