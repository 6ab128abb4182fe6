#pragma once
#include "backend/cpu/simd/vec.h"
#include "core/dtype.h"

namespace crest::cpu::CREST_ISA {

// Calls f with a null pointer of the storage type of f32, bf16 or f16.
template <class F>
void with_type(DType t, F f) {
  if (t == DType::f32)
    f((float*)nullptr);
  else if (t == DType::bf16)
    f((bfloat16*)nullptr);
  else
    f((float16*)nullptr);
}

}  // namespace crest::cpu::CREST_ISA
