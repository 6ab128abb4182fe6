// Shared by attention on vectors (attention.cpp) and on matrix units (attention_amx.cpp): masks,
// softmax, dropout and the gradient of a tile of scores in floats. Each has its own products around
// them.
#pragma once
#include "backend/cpu/simd/attention_scratch.h"
#include "backend/cpu/simd/philox.h"
#include "backend/cpu/simd/tile.h"

namespace crest::cpu::CREST_ISA {

inline constexpr int64_t block = attention_block;
inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
inline constexpr float infinity = __builtin_inff();

CREST_INLINE int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
CREST_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

inline void store_head_row(void* to, const AttentionArgs& a, int64_t element, const float* from, float factor) {
  if (a.dtype == DType::f32)
    store_row((float*)to + element, from, a.head_dim, factor);
  else if (a.dtype == DType::bf16)
    store_row((bfloat16*)to + element, from, a.head_dim, factor);
  else
    store_row((float16*)to + element, from, a.head_dim, factor);
}

// Low words of the 64-bit lanes of two vectors, in order.
CREST_INLINE Vu low_words(Vq a, Vq b) {
#if CREST_LANES == 16
  return __builtin_shufflevector((Vu)a, (Vu)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif CREST_LANES == 8
  return __builtin_shufflevector((Vu)a, (Vu)b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return __builtin_shufflevector((Vu)a, (Vu)b, 0, 2, 4, 6);
#endif
}

// Multiplies a transposed tile of probabilities s[key][query] with the dropout mask over 1 - p.
inline void drop_transposed(const AttentionArgs& a, float* s, int64_t head, int64_t i0, int64_t j0, int64_t nk) {
  uint32_t threshold = keep_threshold(a.p);
  float factor = float(1.0 / (1.0 - a.p));
  bool aligned = a.sequence % 4 == 0;
  for (int64_t i = 0; i < block; i += lanes) {
    uint64_t elements[lanes];
    const int64_t query = head * a.sequence + a.first_position + i0 + i;
    for (int l = 0; l < lanes; ++l) elements[l] = uint64_t((query + l) * a.sequence + j0);
    Vq row[2] = {*(const VqMemory*)elements, *(const VqMemory*)(elements + philox_lanes)};
    for (int64_t r = 0; r < nk; r += aligned ? 4 : 1) {
      Vq x[4], y[4];
      philox_vector(a.seed, a.stream, (row[0] + uint64_t(r)) >> 2, x);
      philox_vector(a.seed, a.stream, (row[1] + uint64_t(r)) >> 2, y);
      Vu words[4];
      for (int w = 0; w < 4; ++w) words[w] = low_words(x[w], y[w]);
      if (!aligned) {
        Vu which = low_words(row[0] + uint64_t(r), row[1] + uint64_t(r)) & 3u;
        words[0] = which == 0u ? words[0] : which == 1u ? words[1] : which == 2u ? words[2] : words[3];
      }
      for (int64_t w = 0; w < (aligned ? least(4, nk - r) : 1); ++w) {
        float* p = s + (r + w) * block + i;
        store(p, (words[w] >> 8) >= threshold ? load(p) * factor : Vf{});
      }
    }
  }
}

// The first keys seen by the queries of a block: where their documents and windows begin.
struct FirstKeys {
  int32_t of[block];
  int64_t lowest = 0, highest = 0;
  FirstKeys(const AttentionArgs& a, int64_t i0) {
    if (!a.has_first()) return;
    int64_t nq = least(block, a.queries - i0);
    lowest = a.keys;
    for (int64_t i = 0; i < block; ++i) {
      int64_t t = a.first_position + i0 + i, key = 0;
      if (a.window && key < t - a.window + 1) key = t - a.window + 1;
      const int64_t row = i0 + i - a.lead;
      if (a.positions && i < nq && row >= 0 && key < t - a.positions[row]) key = t - a.positions[row];
      of[i] = int32_t(least(key, t));
      if (i >= nq || row < 0) continue;
      lowest = least(lowest, of[i]);
      highest = of[i] > highest ? of[i] : highest;
    }
  }
};

// The first key block of the first query: no query sees keys before it.
CREST_INLINE int64_t first_block(const AttentionArgs& a) {
  int64_t key = a.window ? a.first_position - a.window + 1 : 0;
  return key > 0 ? key / block * block : 0;
}

// The last query with this key in its window.
CREST_INLINE int64_t last_query(const AttentionArgs& a, int64_t key) {
  return least(a.window ? key + a.window - 1 - a.first_position : a.queries, a.queries - 1);
}

// Backward: the first block of queries with a view of a key of this block.
CREST_INLINE int64_t first_query_block(const AttentionArgs& a, int64_t j0) {
  return a.causal && j0 > a.first_position ? (j0 - a.first_position) / block * block : 0;
}

// Scores of unseen keys become -inf.
inline void mask_tile(const AttentionArgs& a, const FirstKeys& firsts, float* s, int64_t i, int64_t i0, int64_t j0,
                      int64_t nk) {
  Vi position, first{};
  for (int l = 0; l < lanes; ++l) {
    position[l] = int32_t(a.first_position + i0 + i + l - j0);
    if (a.has_first()) first[l] = int32_t(firsts.of[i + l] - j0);
  }
  for (int64_t r = 0; r < nk; ++r) {
    Vf x = load(s + r * block);
    x = position < int32_t(r) ? splat(-infinity) : x;
    if (a.has_first()) x = first > int32_t(r) ? splat(-infinity) : x;
    store(s + r * block, x);
  }
}

// State of one block of queries after some keys.
struct Softmax {
  float *s, *m, *l, *alpha;  // scores s[key][query]; by query: maximum (log2 units), sum, factor of earlier results
  float factor;              // > 0: of scores, to log2 units
  int64_t queries;           // a multiple of lanes
};

// Exponentials of one tile of scores s[key][query]: updates the running maximum and sum, leaves the
// probabilities in s and the factor of earlier results in alpha. A query may see nothing of the
// tile, or nothing so far. Keys unseen by all queries of a vector are left out: they were not (all)
// computed, and no sum reads them.
inline void online_softmax(const AttentionArgs& a, const Softmax& w, const FirstKeys& firsts, int64_t i0, int64_t j0,
                           int64_t nk, bool masked) {
  for (int64_t i = 0; i < w.queries; i += lanes) {
    float* s = w.s + i;
    Vf m = splat(-infinity), before = load(w.m + i);
    int64_t keys = masked ? least(nk, a.first_position + i0 + i + lanes - j0) : nk;
    if (masked) mask_tile(a, firsts, s, i, i0, j0, keys);
    Vf m2 = m;
    int64_t row = 0;
    for (; row + 2 <= keys; row += 2) m = max(m, load(s + row * block)), m2 = max(m2, load(s + (row + 1) * block));
    if (row < keys) m = max(m, load(s + row * block));
    m = max(max(m, m2) * w.factor, before);
    Vf total{}, shift = m == -infinity ? Vf{} : m;
    for (int64_t r = 0; r < keys; ++r) {
      Vf p = exp2_negative(load(s + r * block) * w.factor - shift);
      store(s + r * block, p);
      total += p;
    }
    Vf alpha = exp2_negative(before - shift);
    store(w.alpha + i, alpha);
    store(w.l + i, load(w.l + i) * alpha + total);
    store(w.m + i, m);
  }
}

CREST_INLINE void zero(float* p, int64_t n) { __builtin_memset(p, 0, size_t(n) * 4); }

// Scores p[query][key] and dP become probabilities (dropped) and dS.
struct BackwardTile {
  float *p, *ds;
  const float *lse, *d;  // of all queries of the head: log2 of the sum; the sum of p dP
  float factor;          // of scores, to log2 units
  uint32_t* words;       // random ones of a row
};
inline void backward_tile(const AttentionArgs& a, const BackwardTile& w, const FirstKeys& firsts, int64_t head,
                          int64_t i0, int64_t j0, bool masked) {
  uint32_t threshold = keep_threshold(a.p);
  float factor = float(1.0 / (1.0 - a.p));
  Vi column;
  for (int l = 0; l < lanes; ++l) column[l] = int32_t(l);
  for (int64_t i = 0; i < block; ++i) {
    float* p = w.p + i * block;
    float* ds = w.ds + i * block;
    float lse = w.lse[i0 + i], d = w.d[i0 + i];
    const uint32_t* words = w.words;
    if (a.p > 0) {
      uint64_t e = uint64_t((head * a.sequence + a.first_position + i0 + i) * a.sequence + j0);
      philox_words(a.seed, a.stream, e >> 2, block / 4 + 1, w.words);
      words += e & 3;
    }
    int32_t visible = int32_t(a.first_position + i0 + i - j0), first = a.has_first() ? int32_t(firsts.of[i] - j0) : 0;
    // Vectors behind the diagonal were not computed, and no sum reads them.
    int64_t end = masked ? least(block, visible + 1) : block;
    for (int64_t j = 0; j < end; j += lanes) {
      Vf x = exp2_negative(load(p + j) * w.factor - lse), dp = load(ds + j);
      if (masked) x = column + int32_t(j) > visible ? Vf{} : x, dp = column + int32_t(j) > visible ? Vf{} : dp;
      if (a.has_first()) x = column + int32_t(j) < first ? Vf{} : x;
      Vf kept = x;
      if (a.p > 0) {
        Vu word = *(const VuMemory*)(words + j);
        kept = (word >> 8) >= threshold ? x * factor : Vf{};
        dp = (word >> 8) >= threshold ? dp * factor : Vf{};
      }
      store(p + j, kept);
      store(ds + j, x * (dp - d));
    }
  }
}

// Rows of `dp` floats.
inline void reduce_rows(const AttentionGradArgs& g, int64_t begin, int64_t end, float* scratch, int64_t dp) {
  const AttentionArgs& a = g.forward;
  const int64_t queries = a.queries - a.lead, heads = a.chunks * a.heads;
  for (int64_t r = begin; r < end; ++r) {
    int64_t head = r / queries, t = r % queries;
    const float* from = g.partial + ((g.chunk * a.heads + head) * a.padded + a.lead + t) * dp;
    for (int64_t i = 0; i < dp; i += lanes) {
      Vf s = load(from + i);
      for (int64_t k = 1; k < g.segments; ++k) s += load(from + k * heads * a.padded * dp + i);
      store(scratch + i, s);
    }
    store_head_row(g.dq, a, head * a.head_dim + t * a.q_stride, scratch, a.scale);
  }
}

}  // namespace crest::cpu::CREST_ISA
