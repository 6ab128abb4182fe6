// Rows of Adafactor's matrices.
#include "backend/cpu/simd/optimizer.h"
#include "backend/cpu/simd/optimizer_rules.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr int64_t tile = 1024;

// f(column, gradients, count) over pieces of a row.
template <class F>
CREST_INLINE void for_tiles(const void* g, DType t, int64_t n, F f) {
  float scratch[tile];
  for (int64_t j = 0; j < n; j += tile) {
    int64_t k = n - j < tile ? n - j : tile;
    f(j, as_floats(row_of(g, t, j), t, k, scratch), k);
  }
}

double row_squares(const void* g, DType t, float factor, int64_t n, float* col) {
  double total = 0;
  for_tiles(g, t, n, [&](int64_t j, const float* x, int64_t count) {
    Vf squares{};
    for_vectors(count, [&](int64_t i, int64_t k) {
      Vf y = load_some(x + i, k) * factor;
      squares = squares + y * y;
      store_some(col + j + i, load_some(col + j + i, k) + y * y, k);
    });
    total += double(sum(squares));
  });
  return total;
}

double direction_squares(const void* g, DType t, float factor, int64_t n, const float* col) {
  double total = 0;
  for_tiles(g, t, n, [&](int64_t j, const float* x, int64_t count) {
    Vf squares{};
    for_vectors(count, [&](int64_t i, int64_t k) {
      Vf y = load_some(x + i, k) * factor * load_some(col + j + i, k);
      squares = squares + y * y;
    });
    total += double(sum(squares));
  });
  return total;
}

void row_update(float* p, const void* g, DType t, float factor, float decay, int64_t n, const float* col, void* copy,
                DType copy_dtype) {
  for_tiles(g, t, n, [&](int64_t j, const float* x, int64_t count) {
    for_vectors(count, [&](int64_t i, int64_t k) {
      Vf y = load_some(x + i, k) * factor * load_some(col + j + i, k), w = load_some(p + j + i, k);
      store_some(p + j + i, w - w * decay - y, k);
    });
    if (copy) weights_of_masters(row_of(copy, copy_dtype, j), copy_dtype, p + j, count);
  });
}

}  // namespace

const FactoredFunctions factored_functions = {row_squares, direction_squares, row_update};

}  // namespace crest::cpu::CREST_ISA
