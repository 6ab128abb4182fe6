#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"
#include "core/scalars.h"

namespace crest::cpu {

// Dropout of rows, inside an operation with the rows in cache.
struct DropoutRows {
  const Scalars* scalars = nullptr;  // null: nothing is dropped
  uint32_t rng_id = 0;
  double p = 0;
  int64_t rows = 1, first = 0, before = 0, half = INT32_MAX, upper = 0;  // backend/dropout_place.h
};

struct DropoutFunctions {
  // Elements begin .. end-1 of one sample, with a cast where dtypes differ. y may be x.
  void (*apply)(const void* x, DType, void* y, DType, int64_t begin, int64_t end, double p, uint64_t seed,
                uint64_t stream);
  // Row `row` of all samples, n elements; x and y point at it, y may be x.
  void (*row)(const DropoutRows&, int64_t row, const void* x, void* y, DType, int64_t n);
};
CREST_SIMD_TABLE(DropoutFunctions, dropout_functions)

}  // namespace crest::cpu
