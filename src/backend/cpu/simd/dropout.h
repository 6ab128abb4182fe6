#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct DropoutFunctions {
  // Elements begin .. end-1 of one sample; begin is a multiple of 64. y may be x.
  void (*apply)(const void* x, void* y, DType, int64_t begin, int64_t end, double p, uint64_t seed, uint64_t stream);
};
CREST_SIMD_TABLE(DropoutFunctions, dropout_functions)

}  // namespace crest::cpu
