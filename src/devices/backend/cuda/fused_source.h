// CUDA C++ source of a fused body, compiled at run time. The text
// depends on operations, dtypes and vector width only: bodies with
// other names or element counts, as in all layers, share one kernel.
#pragma once
#include <string>
#include <vector>

#include "backend/cuda/fused_body.h"

namespace crest::cuda {

// Kernels of a source. The vector kernel, there when vector_width(body) > 1, needs every address
// aligned to its vectors; the scalar one takes any. Parameters: the addresses of loads and stores
// as one struct, and
//   without column sums: long long numel; with: float* partials, long long rows, long long columns, long long slab
inline constexpr const char* fused_vector_kernel = "fused_vector";
inline constexpr const char* fused_scalar_kernel = "fused_scalar";

struct FusedSource {
  std::string primitives;  // device instructions without a C++ form; a host build of the source brings its own
  std::string kernels;
  std::string text() const { return primitives + kernels; }
};
FusedSource fused_source(const FusedBody& body);

// One launch of a generated kernel. Partial column sums, [sums][grid[1]][columns], are left to
// reduce_partials.
struct FusedLaunch {
  bool vector = false;  // which kernel
  unsigned grid[2] = {1, 1}, block[2] = {1, 1};
  std::vector<void*> pointers;
  float* partials = nullptr;
  long long sizes[3] = {};
  std::vector<void*> arguments();  // addresses of the parameters, inside this object
};
FusedLaunch fused_launch(const KernelCall& call, const FusedBody& body, const Device& device);

}  // namespace crest::cuda
