#pragma once
#include "backend/backend.h"

namespace crest::cpu {

Kernel cast_kernel();

// to[r, c] = from[r, c], rows to_ld / from_ld elements apart; f32, bf16 and f16 in any pair.
void convert_rows(void* to, DType to_dtype, int64_t to_ld, const void* from, DType from_dtype, int64_t from_ld,
                  int64_t rows, int64_t cols, int threads);

}  // namespace crest::cpu
