// Stable sort of tokens by a key of a few bits: radix sort from the lowest digit (Knuth, vol. 3,
// 5.2.5). Each pass counts the digits of a tile of tokens, and then every block moves its tile to
// where the counts of the digits below and of the tiles before it end. All counts are integers, so
// the order is the same in every run.
#pragma once
#include "backend/cuda/device/platform.h"

namespace crest::cuda {

struct SortToken {
  uint32_t key;
  int32_t position;
};

constexpr int sort_threads = 512, sort_warps = sort_threads / 32;
constexpr int sort_most_bins = 512;  // of a digit

struct SortDigit {
  int shift, bins;  // bins: a power of two
  __device__ int operator()(uint32_t key) const { return int(key >> shift) & (bins - 1); }
};

// The threads' values (one each, sort_threads of them) summed over all threads before.
__device__ inline int sort_scan(int x) {
  __shared__ int warp_total[sort_warps];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), sum = x;
  for (int d = 1; d < 32; d *= 2) {
    int before = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += before;
  }
  __syncthreads();  // a scan before this one may still be read
  if (lane == 31) warp_total[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_total[w];
  return sum - x;
}

// Tokens begin .. end of `load` (number -> SortToken) go to `put` (place, SortToken), equal digits
// in order, to the places from first + (sum of this function's argument `before` over smaller
// digits). A thread d < bins passes for digit d: total, the tokens of this digit counted here, and
// before, the tokens in front of this block's. total < 0: this block has all tokens. All threads of
// the block call it.
template <class Load, class Put>
__device__ void sort_scatter(SortDigit digit, int begin, int end, int total, int before, const Load& load,
                             const Put& put) {
  __shared__ int next[sort_warps][sort_most_bins];  // where a warp puts its next token of a digit
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), d = int(threadIdx.x);
  // A warp takes a piece, 32 tokens at a time.
  int piece = (end - begin + sort_threads - 1) / sort_threads * 32;
  int first = min(end, begin + warp * piece), last = min(end, first + piece);
  for (int i = lane; i < digit.bins; i += 32) next[warp][i] = 0;
  __syncwarp();
  for (int i = first + lane; i < last; i += 32) atomicAdd(&next[warp][digit(load(i).key)], 1);
  __syncthreads();
  if (total < 0) {
    total = 0;
    if (d < digit.bins)
      for (int w = 0; w < sort_warps; ++w) total += next[w][d];
  }
  int place = sort_scan(total) + before;
  if (d < digit.bins)
    for (int w = 0; w < sort_warps; ++w) {
      int count = next[w][d];
      next[w][d] = place;
      place += count;
    }
  __syncthreads();
  for (int start = first; start < last; start += 32) {
    int i = start + lane;
    SortToken token = {0, 0};
    int bin = digit.bins;  // of no token
    if (i < last) token = load(i), bin = digit(token.key);
    unsigned same = __match_any_sync(0xffffffffu, bin);
    int rank = __popc(same & ((1u << lane) - 1));
    int to = i < last ? next[warp][bin] : 0;
    __syncwarp();
    if (i < last && rank == 0) next[warp][bin] = to + __popc(same);
    __syncwarp();
    if (i < last) put(to + rank, token);
  }
  __syncthreads();  // the block sees the new values; `next` may be used again
}

// Tokens before the first pass, counted from this rank's first row of the table. Ids outside 0 ..
// limit - 1 become limit, so they sort to the end.
struct SortIds {
  const int32_t* ids;
  int limit;
  int64_t first;
  __device__ SortToken operator()(int i) const {
    const int64_t id = ids[i] - first;
    return {id >= 0 && id < limit ? uint32_t(id) : uint32_t(limit), i};
  }
};

// Tokens between passes and at the end.
struct SortedTokens {
  const SortToken* all;
  __device__ SortToken operator()(int i) const { return all[i]; }
};

// All passes in one block; the sorted tokens end in `even` after an odd number of passes.
static __global__ void __launch_bounds__(sort_threads)
    sort_alone(SortIds ids, int n, int passes, int bits, SortToken* even, SortToken* odd) {
  wait_for_predecessors();
  for (int p = 0; p < passes; ++p) {
    SortToken *from = p % 2 ? even : odd, *to = p % 2 ? odd : even;
    sort_scatter(
        {p * bits, 1 << bits}, 0, n, -1, 0, [&](int i) { return p == 0 ? ids(i) : from[i]; },
        [&](int place, SortToken t) { to[place] = t; });
  }
}

// counts[pass][tile][bin]: of the first digit here, of a later one by the pass before it.
static __global__ void __launch_bounds__(sort_threads)
    sort_count(SortIds ids, int n, int tile, int passes, SortDigit digit, int* counts) {
  wait_for_predecessors();
  __shared__ int count[sort_most_bins];
  int d = int(threadIdx.x), begin = int(blockIdx.x) * tile;
  if (d < digit.bins) count[d] = 0;
  __syncthreads();
  for (int i = begin + d; i < min(n, begin + tile); i += sort_threads) atomicAdd(&count[digit(ids(i).key)], 1);
  __syncthreads();
  for (int p = 0; p < passes; ++p)
    if (d < digit.bins) counts[(p * int(gridDim.x) + int(blockIdx.x)) * digit.bins + d] = p == 0 ? count[d] : 0;
}

template <class Load>
__global__ void __launch_bounds__(sort_threads)
    sort_tile(Load load, int n, int tile, SortDigit digit, const int* counts, SortToken* out, SortDigit next,
              int* next_counts) {
  wait_for_predecessors();
  int d = int(threadIdx.x), total = 0, before = 0;
  if (d < digit.bins) {
#pragma unroll 16
    for (int t = 0; t < int(gridDim.x); ++t) {
      int count = counts[t * digit.bins + d];
      total += count;
      before += t < int(blockIdx.x) ? count : 0;
    }
  }
  auto put = [&](int place, SortToken t) {
    out[place] = t;
    if (next_counts) atomicAdd(&next_counts[place / tile * next.bins + next(t.key)], 1);
  };
  int begin = int(blockIdx.x) * tile;
  sort_scatter(digit, begin, min(n, begin + tile), total, before, load, put);
}

}  // namespace crest::cuda
