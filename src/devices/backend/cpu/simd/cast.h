#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// f32, bf16 and f16 only; n elements, any alignment of whole elements.
struct CastFunctions {
  void (*convert)(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t n);
  // to += from, rounded to the dtype of `to`.
  void (*add)(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t n);
  // a = gelu(h), tanh form; a may be h.
  void (*gelu)(void* a, const void* h, DType dtype, int64_t n);
};
CREST_SIMD_TABLE(CastFunctions, cast_functions)

}  // namespace crest::cpu
