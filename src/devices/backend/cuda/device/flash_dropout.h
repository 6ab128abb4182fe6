// Dropout of attention probabilities in C fragments (mma.h). Element (row, column) of a head is
// kept or not as core/random.h says for e = (head T + row) T + column; a Philox block is the four
// elements 4 (e / 4) .. + 3.
#pragma once
#include "backend/cuda/device/flash_sizes.h"
#include "core/random.h"

namespace crest::cuda {

// Of one head of one sample.
struct DropoutHead {
  uint64_t seed, stream, first;  // first: element (0, 0)
  uint32_t threshold;
  int tokens;

  __device__ DropoutHead(const DropoutRule& rule, int batch, int head, int tokens)
      : seed(rule.scalars->seed),
        stream(dropout_stream(uint64_t(rule.scalars->sample_base + batch), rule.rng_id)),
        first(uint64_t(unsigned(head) + rule.first_head) * uint64_t(tokens) * uint64_t(tokens)),
        threshold(rule.threshold),
        tokens(tokens) {}

  __device__ uint64_t element(int row, int column) const {
    return first + uint64_t(row) * uint64_t(tokens) + uint64_t(column);
  }
  __device__ bool kept(int row, int column) const {
    return random_bits(seed, stream, element(row, column)) >> 8 >= threshold;
  }
  // Bit i: whether element (row, column + i) is kept; column and tokens are multiples of 4.
  __device__ uint32_t kept4(int row, int column) const {
    Random4 r = philox(seed, stream, element(row, column) >> 2);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits |= uint32_t(r.x[i] >> 8 >= threshold) << i;
    return bits;
  }
};

// Bit 4 n + i: whether number i of C fragment n is kept, for NT fragments side by side; rows:
// queries `row` .. + 15, columns: keys from `column` on.
template <int NT>
__device__ inline uint32_t kept_by_queries(const DropoutHead& head, int row, int column) {
  static_assert(NT <= 8);
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
  uint32_t word = 0;
  if (head.tokens % 4) {
#pragma unroll 1
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word |= uint32_t(head.kept(row + g + i / 2 * 8, column + 8 * n + 2 * t + i % 2)) << (4 * n + i);
    return word;
  }
  // A block has the columns of two lanes: the even one computes it for row g, the odd one for
  // row g + 8.
#pragma unroll
  for (int n = 0; n < NT; ++n) word |= head.kept4(row + g + t % 2 * 8, column + 8 * n + t / 2 * 4) << 4 * n;
  uint32_t other = __shfl_xor_sync(0xffffffffu, word, 1);
  return t % 2 ? (other >> 2 & 0x33333333u) | (word & 0xccccccccu) : (word & 0x33333333u) | (other & 0x33333333u) << 2;
}

// The same with rows: keys `key` .. + 15,
// columns: queries from `query` on.
template <int NT>
__device__ inline uint32_t kept_by_keys(const DropoutHead& head, int key, int query) {
  static_assert(NT <= 8);
  int lane = int(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  uint32_t word = 0;
  if (head.tokens % 4) {
#pragma unroll 1
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word |= uint32_t(head.kept(query + 8 * n + 2 * t + i % 2, key + g + i / 2 * 8)) << (4 * n + i);
    return word;
  }
  // A block has the rows of four lanes, each with one of its four numbers from another block: lane
  // i of the four computes the block of number i.
#pragma unroll
  for (int n = 0; n < NT; ++n)
    word |= head.kept4(query + 8 * n + 2 * t + g % 2, key + g / 2 % 2 * 8 + g / 4 * 4) << 4 * n;
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    kept |= (__shfl_sync(0xffffffffu, word, (lane & ~12) | i << 2) >> g % 4 & 0x11111111u) << i;
  return kept;
}

}  // namespace crest::cuda
