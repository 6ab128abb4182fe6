#include "backend/cpu/simd/dropout.h"

#include "backend/cpu/simd/philox.h"

namespace crest::cpu::CREST_ISA {
namespace {

template <class T>
void apply_elements(const T* x, T* y, int64_t begin, int64_t end, double p, uint64_t seed, uint64_t stream) {
  constexpr int64_t tile = 1024;
  uint32_t words[tile];
  uint32_t threshold = keep_threshold(p);
  float factor = float(1.0 / (1.0 - p));
  for (int64_t e = begin; e < end; e += tile) {
    int64_t n = end - e < tile ? end - e : tile;
    philox_words(seed, stream, uint64_t(e) / 4, (n + 3) / 4, words);
    for_vectors(n, [&](int64_t i, int64_t k) {
      Vu word = *(const VuMemory*)(words + i);
      store_some(y + e + i, (word >> 8) >= threshold ? load_some(x + e + i, k) * factor : Vf{}, k);
    });
  }
}

void apply(const void* x, void* y, DType t, int64_t begin, int64_t end, double p, uint64_t seed, uint64_t stream) {
  if (t == DType::f32)
    apply_elements((const float*)x, (float*)y, begin, end, p, seed, stream);
  else if (t == DType::bf16)
    apply_elements((const bfloat16*)x, (bfloat16*)y, begin, end, p, seed, stream);
  else
    apply_elements((const float16*)x, (float16*)y, begin, end, p, seed, stream);
}

}  // namespace

const DropoutFunctions dropout_functions = {apply};

}  // namespace crest::cpu::CREST_ISA
