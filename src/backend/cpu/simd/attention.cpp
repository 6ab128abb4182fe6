#include "backend/cpu/simd/attention.h"

#include "backend/cpu/simd/philox.h"
#include "backend/cpu/simd/tile.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr int64_t block = 64;  // queries and keys of a tile: a 64 x 64 float tile is 16 KiB
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr float infinity = __builtin_inff();

CREST_INLINE int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
CREST_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Regions of floats in scratch, one after the other.
struct Arena {
  float* at;
  float* take(int64_t floats) {
    float* p = at;
    at += up(floats, 16);
    return p;
  }
};

// The keys and values of one head as floats, then what one query block needs.
struct ForwardScratch {
  float *k, *v, *q, *qt, *s, *o, *m, *l, *alpha;
  int64_t size;
  ForwardScratch(const AttentionArgs& a, float* base) {
    Arena w{base};
    int64_t dp = up(a.head_dim, lanes), keys = up(a.keys, block);
    k = w.take(keys * dp), v = w.take(keys * dp);
    q = w.take(block * dp), qt = w.take(dp * block);
    s = w.take(block * block), o = w.take(block * dp);
    m = w.take(block), l = w.take(block), alpha = w.take(block);
    size = w.at - base;
  }
};

int64_t forward_scratch(const AttentionArgs& a) { return ForwardScratch(a, nullptr).size; }

// Converts rows first .. of a strided head into packed floats; rows behind the last one are zero.
void pack(float* to, const void* from, const AttentionArgs& a, int64_t stride, int64_t first, int64_t count,
          int64_t padded_rows, float factor) {
  int64_t dp = up(a.head_dim, lanes);
  if (a.dtype == DType::f32)
    pack_rows(to, dp, (const float*)from + first * stride, stride, a.head_dim, count, padded_rows, factor);
  else if (a.dtype == DType::bf16)
    pack_rows(to, dp, (const bfloat16*)from + first * stride, stride, a.head_dim, count, padded_rows, factor);
  else
    pack_rows(to, dp, (const float16*)from + first * stride, stride, a.head_dim, count, padded_rows, factor);
}

void pack_keys(const AttentionArgs& a, float* scratch) {
  ForwardScratch w(a, scratch);
  pack(w.k, a.k, a, a.k_stride, 0, a.keys, up(a.keys, block), 1.0f);
  pack(w.v, a.v, a, a.v_stride, 0, a.keys, up(a.keys, block), 1.0f);
}

void store_head_row(void* to, const AttentionArgs& a, int64_t element, const float* from, float factor) {
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
void drop_transposed(const AttentionArgs& a, float* s, int64_t head, int64_t i0, int64_t j0, int64_t nk) {
  uint32_t threshold = keep_threshold(a.p);
  float factor = float(1.0 / (1.0 - a.p));
  bool aligned = a.keys % 4 == 0;
  for (int64_t i = 0; i < block; i += lanes) {
    uint64_t elements[lanes];
    for (int l = 0; l < lanes; ++l) elements[l] = uint64_t((head * a.queries + i0 + i + l) * a.keys + j0);
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

// The first keys that the queries of a block see: their documents' beginnings.
struct Documents {
  int32_t first[block];
  int64_t lowest = 0, highest = 0;
  Documents(const AttentionArgs& a, int64_t i0) {
    if (!a.positions) return;
    int64_t nq = least(block, a.queries - i0);
    lowest = a.keys;
    for (int64_t i = 0; i < block; ++i) {
      int64_t t = a.first_position + i0 + i, key = i < nq ? t - a.positions[i0 + i] : 0;
      first[i] = int32_t(key < 0 ? 0 : least(key, t));
      if (i >= nq) continue;
      lowest = least(lowest, first[i]);
      highest = first[i] > highest ? first[i] : highest;
    }
  }
};

// Scores of keys that a query does not see become -inf.
void mask_tile(const AttentionArgs& a, const Documents& documents, float* s, int64_t i, int64_t i0, int64_t j0,
               int64_t nk) {
  Vi position, first{};
  for (int l = 0; l < lanes; ++l) {
    position[l] = int32_t(a.first_position + i0 + i + l - j0);
    if (a.positions) first[l] = int32_t(documents.first[i + l] - j0);
  }
  for (int64_t r = 0; r < nk; ++r) {
    Vf x = load(s + r * block);
    x = position < int32_t(r) ? splat(-infinity) : x;
    if (a.positions) x = first > int32_t(r) ? splat(-infinity) : x;
    store(s + r * block, x);
  }
}

// Exponentials of one tile of scores s[key][query] (log2 units): updates the running maximum and sum, leaves the
// probabilities in s and the factor of earlier results in alpha. A query may see nothing of the tile, or yet. Keys that
// no query of a vector sees are left out: they were not computed (or not all), and no sum reads them.
void online_softmax(const AttentionArgs& a, const ForwardScratch& w, const Documents& documents, int64_t i0, int64_t j0,
                    int64_t nk, bool masked) {
  for (int64_t i = 0; i < block; i += lanes) {
    float* s = w.s + i;
    Vf m = load(w.m + i), before = m;
    int64_t keys = masked ? least(nk, a.first_position + i0 + i + lanes - j0) : nk;
    if (masked) mask_tile(a, documents, s, i, i0, j0, keys);
    Vf m2 = m;
    int64_t row = 0;
    for (; row + 2 <= keys; row += 2) m = max(m, load(s + row * block)), m2 = max(m2, load(s + (row + 1) * block));
    if (row < keys) m = max(m, load(s + row * block));
    m = max(m, m2);
    Vf total{}, shift = m == -infinity ? Vf{} : m;
    for (int64_t r = 0; r < keys; ++r) {
      Vf p = exp2_negative(load(s + r * block) - shift);
      store(s + r * block, p);
      total += p;
    }
    Vf alpha = exp2_negative(before - shift);
    store(w.alpha + i, alpha);
    store(w.l + i, load(w.l + i) * alpha + total);
    store(w.m + i, m);
  }
}

void forward(const AttentionArgs& a, int64_t index, float* scratch) {
  ForwardScratch w(a, scratch);
  int64_t dp = up(a.head_dim, lanes), blocks = (a.queries + block - 1) / block;
  int64_t head = index / blocks, i0 = index % blocks * block, nq = least(block, a.queries - i0);
  const void* q = row_of(a.q, a.dtype, head * a.head_dim);
  pack(w.q, q, a, a.q_stride, i0, nq, block, a.scale * log2_e);
  transpose(w.qt, block, w.q, dp, a.head_dim);
  for (int64_t i = 0; i < block; ++i) w.m[i] = -infinity, w.l[i] = 0;
  int64_t end = a.causal ? least(a.keys, a.first_position + i0 + nq) : a.keys;
  const Documents documents(a, i0);
  int64_t begin = documents.lowest / block * block;
  for (int64_t j0 = begin; j0 < end; j0 += block) {
    int64_t nk = least(block, end - j0);
    int64_t delta = a.causal ? a.first_position + i0 - j0 : block;
    product<false, Start::zero>(up(nk, tile_rows), block, a.head_dim, w.k + j0 * dp, dp, w.qt, block, w.s, block,
                                {Band::keys_by_queries, delta});
    online_softmax(a, w, documents, i0, j0, nk, delta < nk - 1 || documents.highest > j0);
    if (a.p > 0) drop_transposed(a, w.s, a.first_head + head, i0, j0, nk);
    Band band{Band::sum_over_keys, delta};
    if (j0 == begin)
      product<true, Start::zero>(block, dp, nk, w.s, block, w.v + j0 * dp, dp, w.o, dp, band);
    else
      product<true, Start::scaled>(block, dp, nk, w.s, block, w.v + j0 * dp, dp, w.o, dp, band, w.alpha);
  }
  for (int64_t i = 0; i < nq; ++i) {
    store_head_row(a.o, a, head * a.head_dim + (i0 + i) * a.o_stride, w.o + i * dp, 1.0f / w.l[i]);
    if (a.lse) a.lse[head * a.queries + i0 + i] = w.m[i] * ln_2 + __builtin_logf(w.l[i]);
  }
}

// One query head (q, d_o and dq of all its rows), one key block, and the tile between them.
struct BackwardScratch {
  float *q, *d_o, *dq, *segment, *lse, *d, *k, *kt, *vt, *p, *ds, *dk, *dv;
  uint32_t* words;
  int64_t size;
  BackwardScratch(const AttentionArgs& a, float* base) {
    Arena w{base};
    int64_t dp = up(a.head_dim, lanes), rows = up(a.queries, block);
    // Several query heads add to dk and dv of all key blocks; one head finishes a block at a time.
    int64_t keys = a.heads > 1 ? up(a.keys, block) : block;
    q = w.take(rows * dp), d_o = w.take(rows * dp), dq = w.take(rows * dp), segment = w.take(rows * dp);
    lse = w.take(rows), d = w.take(rows);
    k = w.take(block * dp), kt = w.take(dp * block), vt = w.take(dp * block);
    p = w.take(block * block), ds = w.take(block * block);
    dk = w.take(keys * dp), dv = w.take(keys * dp);
    words = (uint32_t*)w.take(block + 4 + 64);
    size = w.at - base;
  }
};

int64_t backward_scratch(const AttentionArgs& a) { return BackwardScratch(a, nullptr).size; }

CREST_INLINE void zero(float* p, int64_t n) { __builtin_memset(p, 0, size_t(n) * 4); }

void pack_head(const AttentionGradArgs& g, const BackwardScratch& w, int64_t head) {
  const AttentionArgs& a = g.forward;
  int64_t dp = up(a.head_dim, lanes), rows = up(a.queries, block);
  pack(w.q, row_of(a.q, a.dtype, head * a.head_dim), a, a.q_stride, 0, a.queries, rows, a.scale * log2_e);
  pack(w.d_o, row_of(g.d_o, a.dtype, head * a.head_dim), a, a.o_stride, 0, a.queries, rows, 1.0f);
  for (int64_t t = 0; t < rows; ++t) {
    w.lse[t] = infinity, w.d[t] = 0;  // rows of padding: probability 0
    if (t >= a.queries) continue;
    w.lse[t] = a.lse[head * a.queries + t] * log2_e;
    const void* row = row_of((const void*)a.o, a.dtype, head * a.head_dim + t * a.o_stride);
    if (t + rows_ahead < a.queries)
      prefetch_row((const float*)row_of(row, a.dtype, rows_ahead * a.o_stride), a.head_dim);
    const float* o = as_floats(row, a.dtype, a.head_dim, w.p);
    Vf s{};
    for_vectors(a.head_dim, [&](int64_t i, int64_t k) { s += load_some(o + i, k) * load(w.d_o + t * dp + i); });
    w.d[t] = sum(s);
  }
}

// Scores in w.p (log2 units) and dP in w.ds become probabilities (dropped) and dS.
void backward_tile(const AttentionArgs& a, const BackwardScratch& w, const Documents& documents, int64_t head,
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
      uint64_t e = uint64_t((head * a.queries + i0 + i) * a.keys + j0);
      philox_words(a.seed, a.stream, e >> 2, block / 4 + 1, w.words);
      words += e & 3;
    }
    int32_t visible = int32_t(i0 + i - j0), first = a.positions ? int32_t(documents.first[i] - j0) : 0;
    // Vectors behind the diagonal were not computed, and no sum reads them.
    int64_t end = masked ? least(block, visible + 1) : block;
    for (int64_t j = 0; j < end; j += lanes) {
      Vf x = exp2_negative(load(p + j) - lse), dp = load(ds + j);
      if (masked) x = column + int32_t(j) > visible ? Vf{} : x, dp = column + int32_t(j) > visible ? Vf{} : dp;
      if (a.positions) x = column + int32_t(j) < first ? Vf{} : x;
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

void backward_block(const AttentionGradArgs& g, const BackwardScratch& w, int64_t head, int64_t j0, float* dq,
                    float* dk, float* dv) {
  const AttentionArgs& a = g.forward;
  int64_t dp = up(a.head_dim, lanes), nk = least(block, a.keys - j0);
  pack(w.k, a.v, a, a.v_stride, j0, nk, block, 1.0f);
  transpose(w.vt, block, w.k, dp, a.head_dim);
  pack(w.k, a.k, a, a.k_stride, j0, nk, block, 1.0f);
  transpose(w.kt, block, w.k, dp, a.head_dim);
  for (int64_t i0 = a.causal ? j0 / block * block : 0; i0 < a.queries; i0 += block) {
    int64_t nq = least(block, a.queries - i0), mq = up(nq, tile_rows);
    const Documents documents(a, i0);
    if (documents.lowest >= j0 + nk) continue;
    const float* q = w.q + i0 * dp;
    const float* d_o = w.d_o + i0 * dp;
    int64_t delta = a.causal ? i0 - j0 : block;
    Band tiles{Band::queries_by_keys, delta}, keys{Band::sum_over_keys, delta}, queries{Band::sum_over_queries, delta};
    product<false, Start::zero>(mq, block, a.head_dim, q, dp, w.kt, block, w.p, block, tiles);
    product<false, Start::zero>(mq, block, a.head_dim, d_o, dp, w.vt, block, w.ds, block, tiles);
    backward_tile(a, w, documents, a.first_head + head, i0, j0, delta < block - 1);
    product<true, Start::add>(block, dp, nq, w.p, block, d_o, dp, dv, dp, queries);
    product<true, Start::add>(block, dp, nq, w.ds, block, q, dp, dk, dp, queries);
    product<false, Start::add>(mq, dp, nk, w.ds, block, w.k, dp, dq + i0 * dp, dp, keys);
  }
}

void backward(const AttentionGradArgs& g, int64_t part, int64_t parts, float* scratch) {
  const AttentionArgs& a = g.forward;
  BackwardScratch w(a, scratch);
  int64_t dp = up(a.head_dim, lanes), rows = up(a.queries, block), blocks = (a.keys + block - 1) / block;
  for (int64_t head = 0; head < a.heads; ++head) {
    pack_head(g, w, head);
    for (int64_t s = part; s < g.segments; s += parts) {
      float* dq = g.partial ? g.partial + (s * a.heads + head) * rows * dp : s == part ? w.dq : w.segment;
      zero(dq, rows * dp);
      for (int64_t b = s; b < blocks; b += g.segments) {
        float* dk = a.heads > 1 ? w.dk + b * block * dp : w.dk;
        float* dv = a.heads > 1 ? w.dv + b * block * dp : w.dv;
        if (head == 0) zero(dk, block * dp), zero(dv, block * dp);
        backward_block(g, w, head, b * block, dq, dk, dv);
        if (head + 1 < a.heads) continue;
        for (int64_t r = 0; r < least(block, a.keys - b * block); ++r) {
          // q was packed with scale log2(e).
          store_head_row(g.dk, a, (b * block + r) * a.k_stride, dk + r * dp, ln_2);
          store_head_row(g.dv, a, (b * block + r) * a.v_stride, dv + r * dp, 1.0f);
        }
      }
      if (!g.partial && s != part)
        for (int64_t i = 0; i < rows * dp; i += lanes) store(w.dq + i, load(w.dq + i) + load(dq + i));
    }
    if (g.partial) continue;
    for (int64_t t = 0; t < a.queries; ++t)
      store_head_row(g.dq, a, head * a.head_dim + t * a.q_stride, w.dq + t * dp, a.scale);
  }
}

void reduce(const AttentionGradArgs& g, int64_t begin, int64_t end, float* scratch) {
  const AttentionArgs& a = g.forward;
  int64_t dp = up(a.head_dim, lanes), rows = up(a.queries, block);
  for (int64_t r = begin; r < end; ++r) {
    int64_t head = r / a.queries, t = r % a.queries;
    const float* from = g.partial + (head * rows + t) * dp;
    for (int64_t i = 0; i < dp; i += lanes) {
      Vf s = load(from + i);
      for (int64_t k = 1; k < g.segments; ++k) s += load(from + k * a.heads * rows * dp + i);
      store(scratch + i, s);
    }
    store_head_row(g.dq, a, head * a.head_dim + t * a.q_stride, scratch, a.scale);
  }
}

}  // namespace

const AttentionFunctions attention_functions = {lanes,     block,   forward_scratch, backward_scratch,
                                                pack_keys, forward, backward,        reduce};

}  // namespace crest::cpu::CREST_ISA
