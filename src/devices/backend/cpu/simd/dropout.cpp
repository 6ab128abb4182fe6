#include "backend/cpu/simd/dropout.h"

#include <type_traits>

#include "backend/cpu/simd/dropout_row.h"
#include "backend/cpu/simd/float_type.h"

namespace crest::cpu::CREST_ISA {
namespace {

// With a cast: through a piece of the narrower dtype, which holds the dropped values.
template <class T, class O>
void drop_and_cast(const T* x, O* y, int64_t begin, int64_t end, double p, uint64_t seed, uint64_t stream) {
  if constexpr (sizeof(T) == sizeof(O)) {  // of one type
    drop_elements(x + begin, (T*)y + begin, begin, end - begin, p, seed, stream);
  } else {
    constexpr int64_t piece = 1024;
    std::conditional_t<(sizeof(T) < sizeof(O)), T, O> narrow[piece];
    for (int64_t e = begin; e < end; e += piece) {
      const int64_t n = end - e < piece ? end - e : piece;
      for_vectors(n, [&](int64_t i, int64_t k) { store_some(narrow + i, load_some(x + e + i, k), k); });
      drop_elements(narrow, narrow, e, n, p, seed, stream);
      for_vectors(n, [&](int64_t i, int64_t k) { store_some(y + e + i, load_some(narrow + i, k), k); });
    }
  }
}

void apply(const void* x, DType from, void* y, DType to, int64_t begin, int64_t end, double p, uint64_t seed,
           uint64_t stream) {
  with_type(from, [&](auto* t) {
    with_type(to, [&](auto* o) { drop_and_cast((decltype(t))x, (decltype(o))y, begin, end, p, seed, stream); });
  });
}

void row(const DropoutRows& d, int64_t r, const void* x, void* y, DType t, int64_t n) {
  with_type(t, [&](auto* p) { drop_row(d, r, (decltype(p))x, (decltype(p))y, n); });
}

}  // namespace

const DropoutFunctions dropout_functions = {apply, row};

}  // namespace crest::cpu::CREST_ISA
