#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// y[rows,n] = x[rows,k] w[n,k]^T (+ bias), or its GELU: w is read once from memory, as it is.
struct FewRowsArgs {
  const float* x;
  const void* w;
  const float* scale;  // of each row of w; null: 1
  const void* bias;    // may be null
  void* y;
  void* h;                  // gelu: the product itself; null: not wanted
  DType dtype, bias_dtype;  // dtype: of y and h
  DType w_dtype;
  bool gelu;
  int64_t rows, n, k;
};

struct FewRowsFunctions {
  void (*outputs)(const FewRowsArgs&, int64_t begin, int64_t end);  // columns of y
};
CREST_SIMD_TABLE(FewRowsFunctions, few_rows_functions)

}  // namespace crest::cpu
