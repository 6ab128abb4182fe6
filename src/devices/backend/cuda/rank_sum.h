// The sum over ranks with data addressable by one GPU.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace crest::cuda {

inline constexpr int most_ranks = 64;

struct RankPointers {
  void* of[most_ranks] = {};
  int count = 0;
};

// Element i of every `out` becomes the sum (or mean) of element i of every `in`: added in fp32, in
// the order of the list, and rounded once; f64 is added in f64. f32, bf16, f16, f64. An out may be
// an in. stream: a cudaStream_t.
void sum_ranks(void* stream, const RankPointers& in, const RankPointers& out, DType dtype, int64_t n, bool mean);

}  // namespace crest::cuda
