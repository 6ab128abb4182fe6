#include "backend/cpu/simd/cast.h"

#include "backend/cpu/simd/float_type.h"
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

template <class To, class From>
void convert_typed(To* to, const From* from, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) { store_some(to + i, load_some(from + i, k), k); });
}

void convert(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t n) {
  with_type(to_dtype, [&](auto* t) {
    with_type(from_dtype, [&](auto* f) { convert_typed((decltype(t))to, (decltype(f))from, n); });
  });
}

void add(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t n) {
  with_type(to_dtype, [&](auto* t) {
    with_type(from_dtype, [&](auto* f) {
      auto* out = (decltype(t))to;
      auto* in = (decltype(f))from;
      for_vectors(n,
                  [&](int64_t i, int64_t k) { store_some(out + i, load_some(out + i, k) + load_some(in + i, k), k); });
    });
  });
}

// x/2 (1 + tanh u) = x sigmoid(2u): no cancellation for negative x.
void gelu(void* a, const void* h, DType dtype, int64_t n) {
  with_type(dtype, [&](auto* t) {
    auto* out = (decltype(t))a;
    auto* in = (decltype(t))h;
    for_vectors(n, [&](int64_t i, int64_t k) {
      Vf x = load_some(in + i, k);
      Vf twice = x * (1.59576912f + 0.0713548163f * (x * x));  // 2 sqrt(2/pi) (x + 0.044715 x^3)
      store_some(out + i, x * sigmoid(twice), k);
    });
  });
}

}  // namespace

const CastFunctions cast_functions = {convert, add, gelu};

}  // namespace crest::cpu::CREST_ISA
