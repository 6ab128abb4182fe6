#include "backend/cpu/simd/embedding.h"

#include "backend/cpu/simd/float_type.h"
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

void add_row(void* y, const void* x, DType dtype, const void* table, DType table_dtype, int64_t n) {
  with_type(dtype, [&](auto* t) {
    with_type(table_dtype, [&](auto* u) {
      auto* out = (decltype(t))y;
      auto* in = (decltype(t))x;
      auto* row = (decltype(u))table;
      for_vectors(n,
                  [&](int64_t i, int64_t k) { store_some(out + i, load_some(in + i, k) + load_some(row + i, k), k); });
    });
  });
}

void sum_rows(void* to, DType to_dtype, bool accumulate, const void* const* rows, DType dtype, int64_t count,
              int64_t n) {
  with_type(to_dtype, [&](auto* t) {
    with_type(dtype, [&](auto* u) {
      auto* out = (decltype(t))to;
      for_vectors(n, [&](int64_t i, int64_t k) {
        Vf s = accumulate ? load_some(out + i, k) : Vf{};
        for (int64_t r = 0; r < count; ++r) s += load_some((decltype(u))rows[r] + i, k);
        store_some(out + i, s, k);
      });
    });
  });
}

}  // namespace

const EmbeddingFunctions embedding_functions = {add_row, sum_rows};

}  // namespace crest::cpu::CREST_ISA
