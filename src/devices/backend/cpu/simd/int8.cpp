#include "backend/cpu/simd/int8.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

template <class T>
void dequantize_as(T* to, const int8_t* from, float scale, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) { store_some(to + i, load_some(from + i, k) * scale, k); });
}

void dequantize(void* to, DType dtype, const int8_t* from, float scale, int64_t n) {
  if (dtype == DType::f32)
    dequantize_as((float*)to, from, scale, n);
  else if (dtype == DType::bf16)
    dequantize_as((bfloat16*)to, from, scale, n);
  else
    dequantize_as((float16*)to, from, scale, n);
}

}  // namespace

const Int8Functions int8_functions = {dequantize};

}  // namespace crest::cpu::CREST_ISA
