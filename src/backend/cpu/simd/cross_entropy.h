#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// Rows of logits[rows, cols]; columns >= vocab are padding.
struct CrossEntropyArgs {
  const void* logits;
  void* dlogits;  // may be logits
  const int32_t* targets;
  float* loss;
  float* lse;  // written by forward, read by backward
  int64_t cols, vocab;
  DType dtype;   // of logits and dlogits
  float factor;  // of the gradient
  float weight;  // of the losses
};

// Rows begin .. end-1.
struct CrossEntropyFunctions {
  void (*forward)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*backward)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*fused)(const CrossEntropyArgs&, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(CrossEntropyFunctions, cross_entropy_functions)

}  // namespace crest::cpu
