#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct Int8Functions {
  // to = from times scale, n elements of f32, bf16 or f16.
  void (*dequantize)(void* to, DType dtype, const int8_t* from, float scale, int64_t n);
};
CREST_SIMD_TABLE(Int8Functions, int8_functions)

}  // namespace crest::cpu
