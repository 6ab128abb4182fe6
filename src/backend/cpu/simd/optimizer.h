#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// One flat group; every array has the same length.
struct AdamwArgs {
  float* master;
  float* m;
  float* v;
  const void* gradient;
  void* weight;  // copy of the master weights, null for none
  DType gradient_dtype, weight_dtype;
  float gradient_factor, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float correction1, correction2;  // 1 / (1 - beta^t)
  float eps, lr, decay;            // decay = lr * weight_decay
};

struct OptimizerFunctions {
  void (*adamw)(const AdamwArgs&, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(OptimizerFunctions, optimizer_functions)

}  // namespace crest::cpu
