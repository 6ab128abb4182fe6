#pragma once
#include "backend/cpu/simd/dropout.h"

namespace crest::cpu {

// Rows of x[rows, cols] (with b: of s = x + b, stored rounded; b may be dropped out); y = (x -
// mean) rstd gamma + beta.
struct NormArgs {
  const void* x;
  const void* b;  // null: plain norm
  void* s;
  void* y;
  const float* gamma;
  const float* beta;  // may be null
  float* rstd;
  float* mean;  // null: rms
  int64_t cols;
  DType dtype;  // of x, b, s, y
  float eps;
  DropoutRows dropout;  // of b
};

struct NormGradArgs {
  const void* dy;
  const void* x;
  const void* dres;  // may be null
  void* dx;          // may be dy or dres
  void* dropped;     // null, or dx as it is dropped out; then dx itself is not
  const float* gamma;
  const float* rstd;
  const float* mean;  // null: rms
  int64_t cols;
  DType dtype;  // of dy, x, dres, dx
  DropoutRows dropout;
};

struct NormFunctions {
  // Rows begin .. end-1; scratch holds 2 cols floats.
  void (*forward)(const NormArgs&, int64_t begin, int64_t end, float* scratch);
  // y alone, from rows of x with given statistics; scratch holds cols floats.
  void (*apply)(const NormArgs&, int64_t begin, int64_t end, float* scratch);
  // Adds dy xhat to dgamma[cols] and dy to dbeta[cols] (may be null); scratch holds 3 cols floats.
  void (*backward)(const NormGradArgs&, int64_t begin, int64_t end, float* dgamma, float* dbeta, float* scratch);
  // to[i] = sum over p of parts[p * stride + i], in order of p, for begin <= i < end.
  void (*combine)(float* to, const float* parts, int64_t count, int64_t stride, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(NormFunctions, norm_functions)

}  // namespace crest::cpu
