#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// Rows of logits[rows, cols]; columns >= vocab are padding. If ranks share the vocabulary, the
// columns are those from `first` on of `all`.
struct CrossEntropyArgs {
  const void* logits;
  void* dlogits;  // may be logits
  const int32_t* targets;
  float* loss;
  float* lse;    // written by forward, read by backward
  float* stats;  // [rows, 3]: written by stats, [ranks, rows, 3] read by combine
  int64_t rows, ranks;
  int64_t cols, vocab, first, all;
  int64_t pitch, d_pitch;  // elements from row to row of logits and dlogits
  DType dtype;             // of logits and dlogits
  float factor;            // of the gradient
  float weight;            // of the losses
  float cap;               // of the logits; 0: none
};

// Floats for the fused kernel: a row's exponentials
// and their references, block by block.
inline constexpr int64_t cross_entropy_block = 1024;
inline int64_t cross_entropy_scratch(int64_t vocab) {
  return vocab + (vocab + cross_entropy_block - 1) / cross_entropy_block;
}

// Rows begin .. end-1.
struct CrossEntropyFunctions {
  void (*stats)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*combine)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*forward)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*backward)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*fused)(const CrossEntropyArgs&, int64_t begin, int64_t end, float* scratch);
};
CREST_SIMD_TABLE(CrossEntropyFunctions, cross_entropy_functions)

}  // namespace crest::cpu
