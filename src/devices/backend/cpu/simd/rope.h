#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct RopeFunctions {
  // One token: rotates pairs (i, i + part/2) of the first `part` elements of the first `rotated` of
  // `heads` heads by the angle with these cosines and sines (part/2 each), and copies the rest. y
  // may be x.
  void (*token)(const void* x, void* y, DType, const float* cosine, const float* sine, int64_t rotated, int64_t heads,
                int64_t head_dim, int64_t part);
};
CREST_SIMD_TABLE(RopeFunctions, rope_functions)

}  // namespace crest::cpu
