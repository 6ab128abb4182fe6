#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct EmbeddingFunctions {
  // y = x + table, n elements; y and x of one dtype, y may be x.
  void (*add_row)(void* y, const void* x, DType dtype, const void* table, DType table_dtype, int64_t n);
  // to (+)= sum of rows[0], rows[1], .. in this order, n elements, one rounding.
  void (*sum_rows)(void* to, DType to_dtype, bool accumulate, const void* const* rows, DType dtype, int64_t count,
                   int64_t n);
};
CREST_SIMD_TABLE(EmbeddingFunctions, embedding_functions)

}  // namespace crest::cpu
