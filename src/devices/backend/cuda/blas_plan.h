// A contraction as calls of a BLAS: transposes,
// leading dimensions, strided batches.
#pragma once
#include "backend/cuda/contraction.h"

namespace crest::cuda {

// How a matrix lies in memory: dense rows `ld` elements apart, or dense columns (transposed).
struct BlasMatrix {
  bool transposed = false;
  int64_t ld = 0;
};

// c[m,n] = a[m,k] b[k,n] for every index of `batch` in one call; loops and sum are separate calls.
// Contiguous dimensions of the contraction are joined, with each other or with m or k.
struct BlasPlan {
  int64_t m = 0, n = 0, k = 0;
  BlasMatrix a, b, c;  // c is not transposed
  Contraction::Dim batch, loops[2];
  Contraction::Dim sum;                                       // calls adding to the result of the call before
  int64_t alignment_a = 0, alignment_b = 0, alignment_c = 0;  // bytes; of the first address of every call
  std::string problem;                                        // not empty: a BLAS cannot express it

  int64_t calls() const { return loops[0].size * loops[1].size * sum.size; }
  // Whether a matrix has dense rows (columns) with a length not divisible by 8. cuBLASLt is slow on
  // these in 16-bit floats, whatever the leading dimensions.
  bool has_odd_rows() const;
};

// offset_*: where the matrix starts in its storage, in elements; storages are aligned to 64 bytes.
BlasPlan plan_blas(const Contraction& what, int64_t offset_a, int64_t offset_b, int64_t offset_c);
// The contraction of an instruction.
BlasPlan plan_blas(const Program& program, const Instr& instr);

}  // namespace crest::cuda
