// Dropout in accumulators of wgmma: flash_dropout.h for kernels with independent warps. `head` as
// there.
#pragma once
#include "backend/cuda/device/flash_dropout.h"
#include "backend/cuda/device/hopper.h"

namespace crest::cuda::hopper {

// Bit 4 n + i of word n / 8: whether number i of fragment n is kept. Rows are queries `query` .. +
// 15 of this warp, columns keys from `key`.
template <int NT>
__device__ inline void kept_by_queries(uint32_t (&kept)[NT / 8], const DropoutHead& head, int query, int key) {
  const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
  for (int word = 0; word < NT / 8; ++word) {
    uint32_t bits = 0;
    if (head.tokens % 4) {
#pragma unroll 1
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          bits |= uint32_t(head.kept(query + g + i / 2 * 8, key + 64 * word + 8 * n + 2 * t + i % 2)) << (4 * n + i);
    } else {  // four numbers of Philox are two columns of two lanes: the even lane computes them for row g, the odd one
              // for row g + 8
#pragma unroll 2
      for (int n = 0; n < 8; ++n)
        bits |= head.kept4(query + g + t % 2 * 8, key + 64 * word + 8 * n + t / 2 * 4) << 4 * n;
      uint32_t other = shuffle(bits, lane ^ 1);
      bits =
          t % 2 ? (other >> 2 & 0x33333333u) | (bits & 0xccccccccu) : (bits & 0x33333333u) | (other & 0x33333333u) << 2;
    }
#pragma unroll
    for (int i = 0; i < NT / 8; ++i)
      if (i == word) kept[i] = bits;
  }
}

// The same where rows are keys `key` .. + 15 and columns queries from `query`.
template <int NT>
__device__ inline void kept_by_keys(uint32_t (&kept)[NT / 8], const DropoutHead& head, int key, int query) {
  const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
  for (int word = 0; word < NT / 8; ++word) {
    const int first = query + 64 * word;
    uint32_t bits = 0;
    if (head.tokens % 4) {
#pragma unroll 1
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          bits |= uint32_t(head.kept(first + 8 * n + 2 * t + i % 2, key + g + i / 2 * 8)) << (4 * n + i);
    } else {  // four numbers are four rows of four lanes: each of them computes one of the four columns and row blocks
      uint32_t mine = 0;
#pragma unroll 2
      for (int n = 0; n < 8; ++n)
        mine |= head.kept4(first + 8 * n + 2 * t + g % 2, key + g / 2 % 2 * 8 + g / 4 * 4) << 4 * n;
#pragma unroll
      for (int i = 0; i < 4; ++i) bits |= (shuffle(mine, (lane & ~12) | i << 2) >> g % 4 & 0x11111111u) << i;
    }
#pragma unroll
    for (int i = 0; i < NT / 8; ++i)
      if (i == word) kept[i] = bits;
  }
}

}  // namespace crest::cuda::hopper
