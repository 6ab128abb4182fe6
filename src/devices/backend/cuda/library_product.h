// Products of cuBLASLt in precisions without a training kernel (fp64, fp8, int8): to measure the
// device.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "backend/backend.h"
#include "backend/product_detail.h"

namespace crest::cuda {

struct LibraryProduct {
  std::function<void()> run;  // y = x w^T once, and waits; empty: see problem
  std::string how;            // types and algorithm: "int8 x int8 -> int32"
  std::string problem;        // why the device or the library cannot
  ProductDetail detail = {};
};

// x [m,k], w [n,k] of random numbers exact in the precision. The result is compared with float64 at
// sampled places; throws if it differs, or for lack of memory.
LibraryProduct library_product(const Device& device, const std::string& precision, int64_t m, int64_t n, int64_t k);

}  // namespace crest::cuda
