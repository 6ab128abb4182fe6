// Scores of a warp in C fragments (mma.h), with
// queries as rows: masks and online softmax.
#pragma once
#include "backend/cuda/device/flash_args.h"

namespace crest::cuda {

// Scores of queries row .. + 16 MT - 1 of a chunk with keys column .. + 8 NT - 1: minus infinity
// for keys beyond the end, behind the query (causal) and, where queries have a first key (First),
// before it.
template <bool First, int MT, int NT>
__device__ inline void hide_keys(float (&p)[MT][NT][4], const AttentionSizes& s, int batch, int row, int column,
                                 QueryChunk chunk = {}) {
  int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
  if (column + 8 * NT > s.tokens || (s.causal && column + 8 * NT > row + chunk.shift + 1)) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int query = row + chunk.shift + 16 * m + 8 * h + g, end = s.causal ? min(query + 1, s.tokens) : s.tokens;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (column + 8 * n + 2 * t + e >= end) p[m][n][2 * h + e] = -INFINITY;
      }
  }
  if (First && first_key(s, batch, row + 16 * MT - 1, chunk) > column) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int first = first_key(s, batch, row + 16 * m + 8 * h + g, chunk);
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (column + 8 * n + 2 * t + e < first) p[m][n][2 * h + e] = -INFINITY;
      }
  }
}

// The same for gradients: rows are queries and columns keys, or the other way round (Keys). Rows of
// keys beyond the end stay: they are not written.
template <bool Keys, bool First, int MT, int NT>
__device__ inline void hide_pairs(float (&p)[MT][NT][4], const AttentionSizes& s, int batch, int row, int column,
                                  QueryChunk chunk = {}) {
  if constexpr (!Keys) {
    hide_keys<First>(p, s, batch, row, column, chunk);
  } else {
    int g = int(threadIdx.x % 32 / 4), t = int(threadIdx.x % 4);
    if (s.causal && column + chunk.shift < row + 16 * MT - 1) {
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (row + 16 * m + 8 * (i / 2) + g > column + chunk.shift + 8 * n + 2 * t + i % 2) p[m][n][i] = -INFINITY;
    }
    if (First && first_key(s, batch, column + 8 * NT - 1, chunk) > row) {
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          int first = first_key(s, batch, column + 8 * n + 2 * t + e, chunk);
#pragma unroll
          for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              if (row + 16 * m + 8 * h + g < first) p[m][n][2 * h + e] = -INFINITY;
        }
    }
  }
}

// Row statistics of a warp, two rows a lane and m-fragment; equal in the four lanes of a row except
// `sum`, which is the lane's share. Scores are raw; exponents are score * scale_log2.
template <int MT>
struct OnlineSoftmax {
  float largest[MT][2], sum[MT][2], scale_log2, slack;

  __device__ explicit OnlineSoftmax(float scale) : scale_log2(scale * log2_e), slack(8 / scale_log2) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) largest[m][h] = -INFINITY, sum[m][h] = 0;
  }

  // Largest score of every row, in all four lanes of it.
  template <int NT>
  __device__ static void row_maxima(const float (&s)[MT][NT][4], float (&top)[MT][2]) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float x = s[m][0][2 * h];
#pragma unroll
        for (int n = 0; n < NT; ++n) x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        top[m][h] = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
      }
  }

  // Rescales sums and o where a maximum has to follow `top`. Partly: a row may see nothing of a
  // tile, or yet.
  template <bool Partly, int OT>
  __device__ void follow(const float (&top)[MT][2], float (&o)[MT][OT][4]) {
    bool behind = false;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) behind |= top[m][h] > largest[m][h] + slack;
    if (__any_sync(0xffffffffu, behind)) {
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float now = fmaxf(largest[m][h], top[m][h]);
          float factor = exp2_fast((largest[m][h] - now) * scale_log2);
          if (Partly && now == -INFINITY) factor = 1;
          largest[m][h] = now, sum[m][h] *= factor;
#pragma unroll
          for (int n = 0; n < OT; ++n) o[m][n][2 * h] *= factor, o[m][n][2 * h + 1] *= factor;
        }
    }
  }

  // Scores to exp2((s - largest) scale_log2), added to the sums.
  template <bool Partly, int NT>
  __device__ void weigh(float (&s)[MT][NT][4]) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float shift = Partly && largest[m][h] == -INFINITY ? 0.f : largest[m][h] * scale_log2;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[m][n][e] = exp2_fast(fmaf(s[m][n][e], scale_log2, -shift));
            sum[m][h] += s[m][n][e];
          }
      }
  }

  // For a tile with all scores in one warp.
  template <bool Partly, int NT, int OT>
  __device__ void update(float (&s)[MT][NT][4], float (&o)[MT][OT][4]) {
    float top[MT][2];
    row_maxima(s, top);
    follow<Partly>(top, o);
    weigh<Partly>(s);
  }
};

}  // namespace crest::cuda
