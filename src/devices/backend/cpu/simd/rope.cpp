#include "backend/cpu/simd/rope.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

template <class T>
void rotate(const T* x, T* y, const float* cosine, const float* sine, int64_t rotated, int64_t heads, int64_t dim,
            int64_t part) {
  int64_t half = part / 2;
  for (int64_t h = 0; h < rotated; ++h) {
    const T* a = x + h * dim;
    T* o = y + h * dim;
    for_vectors(half, [&](int64_t i, int64_t k) {
      Vf p = load_some(a + i, k), q = load_some(a + half + i, k);
      Vf c = load_some(cosine + i, k), s = load_some(sine + i, k);
      store_some(o + i, p * c - q * s, k);
      store_some(o + half + i, q * c + p * s, k);
    });
    if (x != y) __builtin_memcpy(o + part, a + part, size_t(dim - part) * sizeof(T));
  }
  if (x != y) __builtin_memcpy(y + rotated * dim, x + rotated * dim, size_t((heads - rotated) * dim) * sizeof(T));
}

void token(const void* x, void* y, DType t, const float* cosine, const float* sine, int64_t rotated, int64_t heads,
           int64_t dim, int64_t part) {
  if (t == DType::f32)
    rotate((const float*)x, (float*)y, cosine, sine, rotated, heads, dim, part);
  else if (t == DType::bf16)
    rotate((const bfloat16*)x, (bfloat16*)y, cosine, sine, rotated, heads, dim, part);
  else
    rotate((const float16*)x, (float16*)y, cosine, sine, rotated, heads, dim, part);
}

}  // namespace

const RopeFunctions rope_functions = {token};

}  // namespace crest::cpu::CREST_ISA
