// Attention of bf16 on AMX's matrix units. Operands are cut into blocks of 64 rows of a head,
// packed as in simd/amx.h. Probabilities and dS become operands, so they are rounded to bf16; all
// sums, and values between products, are floats.
//
// Products are oriented such that the sums of one become the operand of the next without a
// transpose: pairing rows of floats x[term][column] makes columns of an operand, and floats
// x[row][term] are its rows as they lie. Forward:
//   s[key][query] = k q^T        o[d][query] += v^T p
// Backward:
//   s[query][key] = q k^T, dp[query][key] = d_o v^T
//   dv[d][key] += d_o^T p        dk[d][key] += q^T ds        dq[query][d] += ds k
#include "backend/cpu/simd/amx.h"
#include "backend/cpu/simd/amx_tiles.h"
#include "backend/cpu/simd/attention_parts.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr int64_t width = amx_width, step_elements = 2 * tile_elements;

CREST_INLINE int64_t slivers(int64_t n) { return (n + width - 1) / width; }

// Slivers of an operand, `steps` steps each.
struct Operand {
  const uint16_t* at;
  int64_t count, steps;
};

struct Terms {
  int64_t begin, end;  // steps of a sum
};

// c[32 i ..][32 j ..] (+)= the steps terms(32 i, 32 j) of slivers i of a and j of b; nothing where
// there are none.
template <class F>
CREST_INLINE void product(const Operand& a, const Operand& b, float* c, int64_t ldc, bool clear, bool emulated,
                          F terms) {
  for (int64_t i = 0; i < a.count; ++i)
    for (int64_t j = 0; j < b.count; ++j) {
      Terms t = terms(i * width, j * width);
      if (t.begin >= t.end) continue;
      const TileSums sums{c + i * width * ldc + j * width, 16, 16 * ldc, ldc};
      multiply(t.end - t.begin, a.at + (i * a.steps + t.begin) * step_elements,
               b.at + (j * b.steps + t.begin) * step_elements, sums, clear, emulated);
    }
}

// The rows of one head, and its blocks in one of the tiles' formats.
struct Head {
  const void* rows;
  int64_t stride, dim;
};
typedef void (*Pack)(uint16_t*, const uint16_t*, int64_t, bool, int64_t, int64_t);

CREST_INLINE const uint16_t* row(const Head& h, int64_t first) { return (const uint16_t*)h.rows + first * h.stride; }

// Rows of the head are rows or columns of the operand; the dimensions are its terms.
CREST_INLINE Operand pack_along(Pack pack, uint16_t* to, const Head& h, int64_t first, int64_t n) {
  pack(to, row(h, first), h.stride, true, n, h.dim);
  return {to, slivers(n), slivers(h.dim)};
}
// Dimensions of the head are rows or columns of the operand; its rows are the terms.
CREST_INLINE Operand pack_across(Pack pack, uint16_t* to, const Head& h, int64_t first, int64_t n) {
  pack(to, row(h, first), h.stride, false, h.dim, n);
  return {to, slivers(h.dim), slivers(n)};
}

// Rows of a head lie pages apart, beyond hardware prefetchers: prefetched a block ahead.
CREST_INLINE void prefetch(const Head& h, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; ++i) prefetch_row(row(h, first + i), h.dim);
}

// The upper halves are bf16, rounded to nearest
// even. NaNs from arithmetic or bf16 stay NaN.
CREST_INLINE Vu rounded(Vf x) {
  Vu u = as_bits(x);
  return u + 0x7fffu + ((u >> 16) & 1u);
}

// Processors with matrix units round two vectors at once (avx512_bf16).
#if CREST_LANES == 16
CREST_INLINE void round_two(H32& x, const Vf& low, const Vf& high) {
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(x) : "v"(low), "v"(high));
}
#endif

// to[pair] = words of rows 2 pair and 2 pair + 1 of x, 16 columns of a block: a tile of columns.
template <bool emulated>
CREST_INLINE void narrow_columns(uint16_t* to, const float* x) {
  for (int64_t p = 0; p < 16; ++p, to += 32, x += 2 * block) {
#if CREST_LANES == 16
    if constexpr (!emulated) {
      H32 t;
      round_two(t, load(x), load(x + block));
      *(V16Memory*)to = (V16)__builtin_shufflevector(t, t, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8,
                                                     24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      continue;
    }
#endif
    for (int64_t i = 0; i < 16; i += lanes)
      *(VuMemory*)(to + 2 * i) = (rounded(load(x + i)) >> 16) | (rounded(load(x + block + i)) & 0xffff0000u);
  }
}

// 16 rows of 32 columns of a block: a tile of rows.
template <bool emulated>
CREST_INLINE void narrow_rows(uint16_t* to, const float* x) {
  for (int64_t r = 0; r < 16; ++r, to += 32, x += block) {
#if CREST_LANES == 16
    if constexpr (!emulated) {
      H32 t;
      round_two(t, load(x), load(x + 16));
      *(V16Memory*)to = (V16)t;
      continue;
    }
#endif
    for (int64_t i = 0; i < 32; i += lanes)
      *(VhMemory*)(to + i) = __builtin_convertvector(rounded(load(x + i)) >> 16, Vh);
  }
}

// A block of floats x[term][column] as an operand of two steps a sliver.
Operand columns_of(uint16_t* to, const float* x, int64_t terms, int64_t columns, bool emulated) {
  for (int64_t j = 0; j < slivers(columns); ++j)
    for (int64_t k = 0; k < slivers(terms); ++k)
      for (int64_t half = 0; half < 2; ++half) {
        uint16_t* tile = to + (2 * j + k) * step_elements + half * tile_elements;
        const float* from = x + k * width * block + j * width + half * 16;
        emulated ? narrow_columns<true>(tile, from) : narrow_columns<false>(tile, from);
      }
  return {to, slivers(columns), 2};
}
// The same of x[row][term].
Operand rows_of(uint16_t* to, const float* x, int64_t rows, int64_t terms, bool emulated) {
  for (int64_t i = 0; i < slivers(rows); ++i)
    for (int64_t k = 0; k < slivers(terms); ++k)
      for (int64_t half = 0; half < 2; ++half) {
        uint16_t* tile = to + (2 * i + k) * step_elements + half * tile_elements;
        const float* from = x + (i * width + half * 16) * block + k * width;
        emulated ? narrow_rows<true>(tile, from) : narrow_rows<false>(tile, from);
      }
  return {to, slivers(rows), 2};
}

// The first n columns of x[d][column] as rows of dp floats; n is rounded up to 16.
void transpose_columns(float* to, const float* x, int64_t dp, int64_t n) {
  for (int64_t j = 0; j < n; j += 16)
    for (int64_t d = 0; d < dp; d += 16) {
      V16 v[16];
      for (int i = 0; i < 16; ++i) v[i] = *(const V16Memory*)(x + (d + i) * block + j);
      transpose_words(v);
      for (int i = 0; i < 16; ++i) *(V16Memory*)(to + (j + i) * dp + d) = v[i];
    }
}

void pack_keys(const AttentionArgs& a, float* scratch) {
  AmxForwardScratch w(a, scratch);
  const Head k{a.k, a.k_stride, a.head_dim}, v{a.v, a.v_stride, a.head_dim};
  for (int64_t j0 = first_block(a); j0 < a.keys; j0 += block) {
    int64_t n = least(block, a.keys - j0);
    prefetch(k, j0, n), prefetch(v, j0, n);
    pack_along(amx_functions.pack_rows, w.k + j0 * w.dp, k, j0, n);
    pack_across(amx_functions.pack_rows, w.v + j0 * w.dp, v, j0, n);
  }
}

// Keys left out by the softmax, or beyond the end, are terms of the next product.
void clear_hidden_keys(const AttentionArgs& a, float* s, int64_t i0, int64_t j0, int64_t nk, int64_t queries,
                       bool masked) {
  for (int64_t i = 0; i < queries; i += lanes) {
    int64_t r = masked ? least(nk, a.first_position + i0 + i + lanes - j0) : nk;
    for (; r < up(nk, width); ++r) store(s + r * block + i, Vf{});
  }
}

// o[d][query] of earlier keys, by the softmax' new maximum.
void rescale(float* o, int64_t dp, const float* alpha, int64_t queries) {
  for (int64_t i = 0; i < queries; i += lanes) {
    Vf factor = load(alpha + i);
    bool same = true;
    for (int l = 0; l < lanes; ++l) same = same && alpha[i + l] == 1.0f;
    if (same) continue;
    for (int64_t d = 0; d < dp; ++d) store(o + d * block + i, load(o + d * block + i) * factor);
  }
}

void forward(const AttentionArgs& a, int64_t index, float* scratch) {
  AmxForwardScratch w(a, scratch);
  int64_t blocks = (a.queries + block - 1) / block, depth = slivers(a.head_dim);
  int64_t head = index / blocks, i0 = index % blocks * block, nq = least(block, a.queries - i0);
  const Operand q = pack_along(amx_functions.pack_columns, w.q,
                               {row_of(a.q, a.dtype, head * a.head_dim), a.q_stride, a.head_dim}, i0, nq);
  const Softmax softmax{w.s, w.m, w.l, w.alpha, a.scale * log2_e, up(nq, width)};
  for (int64_t i = 0; i < block; ++i) w.m[i] = -infinity, w.l[i] = 0;
  int64_t end = a.causal ? least(a.keys, a.first_position + i0 + nq) : a.keys;
  const FirstKeys firsts(a, i0);
  int64_t begin = firsts.lowest / block * block;
  for (int64_t j0 = begin; j0 < end; j0 += block) {
    int64_t nk = least(block, end - j0), steps = slivers(nk);
    int64_t delta = a.causal ? a.first_position + i0 - j0 : block;
    bool masked = delta < nk - 1 || firsts.highest > j0;
    const Operand k{w.k + j0 * w.dp, steps, depth}, v{w.v + j0 * w.dp, depth, slivers(least(block, a.keys - j0))};
    product(k, q, w.s, block, true, a.emulated, [&](int64_t key, int64_t query) {
      return Terms{0, key > query + width - 1 + delta ? 0 : depth};
    });
    online_softmax(a, softmax, firsts, i0, j0, nk, masked);
    if (a.p > 0) drop_transposed(a, w.s, a.first_head + head, i0, j0, nk);
    clear_hidden_keys(a, w.s, i0, j0, nk, softmax.queries, masked);
    const Operand p = columns_of(w.p, w.s, nk, nq, a.emulated);
    if (j0 > begin) rescale(w.o, w.dp, w.alpha, softmax.queries);
    product(v, p, w.o, block, j0 == begin, a.emulated, [&](int64_t, int64_t query) {
      return Terms{0, least(steps, (query + width - 1 + delta) / width + 1)};
    });
  }
  transpose_columns(w.rows, w.o, w.dp, nq);
  for (int64_t i = 0; i < nq; ++i) {
    store_head_row(a.o, a, head * a.head_dim + (i0 + i) * a.o_stride, w.rows + i * w.dp, 1.0f / w.l[i]);
    if (a.lse) a.lse[head * a.lse_stride + i0 + i] = w.m[i] * ln_2 + __builtin_logf(w.l[i]);
  }
}

void pack_head(const AttentionGradArgs& g, const AmxBackwardScratch& w, int64_t head) {
  const AttentionArgs& a = g.forward;
  int64_t first = head * a.head_dim;
  const Head q{row_of(a.q, a.dtype, first), a.q_stride, a.head_dim};
  const Head d_o{row_of(g.d_o, a.dtype, first), a.o_stride, a.head_dim};
  const Head o{row_of((const void*)a.o, a.dtype, first), a.o_stride, a.head_dim};
  for (int64_t i0 = 0; i0 < a.queries; i0 += block) {
    int64_t n = least(block, a.queries - i0);
    prefetch(q, i0, n), prefetch(d_o, i0, n), prefetch(o, i0, n);
    pack_along(amx_functions.pack_rows, w.q + i0 * w.dp, q, i0, n);
    pack_across(amx_functions.pack_rows, w.q_across + i0 * w.dp, q, i0, n);
    pack_along(amx_functions.pack_rows, w.d_o + i0 * w.dp, d_o, i0, n);
    pack_across(amx_functions.pack_rows, w.d_o_across + i0 * w.dp, d_o, i0, n);
    for (int64_t t = i0; t < i0 + block; ++t) {
      w.lse[t] = infinity, w.d[t] = 0;  // rows of padding: probability 0
      if (t >= a.queries) continue;
      w.lse[t] = a.lse[head * a.lse_stride + t] * log2_e;
      const auto *x = (const bfloat16*)row(o, t), *y = (const bfloat16*)row(d_o, t);
      Vf s{};
      for_vectors(a.head_dim, [&](int64_t i, int64_t k) { s += load_some(x + i, k) * load_some(y + i, k); });
      w.d[t] = sum(s);
    }
  }
}

// Keys behind the diagonal, or beyond the end, are terms of the next products.
void clear_hidden_columns(const AmxBackwardScratch& w, int64_t nq, int64_t nk, int64_t delta) {
  for (int64_t i = 0; i < up(nq, width); ++i) {
    int64_t end = least(nk, up(i + delta + 1, lanes)), n = block - end;
    zero(w.p + i * block + end, n), zero(w.ds + i * block + end, n);
  }
}

void backward_block(const AttentionGradArgs& g, const AmxBackwardScratch& w, int64_t head, int64_t j0, float* dq,
                    float* dk, float* dv) {
  const AttentionArgs& a = g.forward;
  int64_t nk = least(block, a.keys - j0), depth = slivers(a.head_dim);
  int64_t end = last_query(a, j0 + nk - 1) + 1, begin = first_query_block(a, j0);
  if (begin >= end) return;
  const Head key_rows{a.k, a.k_stride, a.head_dim}, value_rows{a.v, a.v_stride, a.head_dim};
  prefetch(key_rows, j0, nk), prefetch(value_rows, j0, nk);
  const Operand k = pack_along(amx_functions.pack_columns, w.k, key_rows, j0, nk);
  const Operand v = pack_along(amx_functions.pack_columns, w.v, value_rows, j0, nk);
  const Operand k_across = pack_across(amx_functions.pack_columns, w.k_across, key_rows, j0, nk);
  const BackwardTile tile{w.p, w.ds, w.lse, w.d, a.scale * log2_e, w.words};
  for (int64_t i0 = begin; i0 < end; i0 += block) {
    int64_t nq = least(block, a.queries - i0), rows = slivers(nq), keys = slivers(nk);
    const FirstKeys firsts(a, i0);
    if (firsts.lowest >= j0 + nk) continue;
    int64_t delta = a.causal ? a.first_position + i0 - j0 : block, at = i0 * w.dp;
    auto visible = [&](int64_t query, int64_t key) { return Terms{0, key > query + width - 1 + delta ? 0 : depth}; };
    auto queries_of = [&](int64_t, int64_t key) { return Terms{key > delta ? (key - delta) / width : 0, rows}; };
    auto keys_of = [&](int64_t query, int64_t) {
      return Terms{0, least(keys, (query + width - 1 + delta) / width + 1)};
    };
    product({w.q + at, rows, depth}, k, w.p, block, true, a.emulated, visible);
    product({w.d_o + at, rows, depth}, v, w.ds, block, true, a.emulated, visible);
    backward_tile(a, tile, firsts, a.first_head + head, i0, j0, delta < block - 1);
    if (delta < block - 1 || nk < block) clear_hidden_columns(w, nq, nk, delta);
    const Operand p_columns = columns_of(w.p_columns, w.p, nq, nk, a.emulated);
    const Operand ds_columns = columns_of(w.ds_columns, w.ds, nq, nk, a.emulated);
    const Operand ds_rows = rows_of(w.ds_rows, w.ds, nq, nk, a.emulated);
    product({w.d_o_across + at, depth, rows}, p_columns, dv, block, false, a.emulated, queries_of);
    product({w.q_across + at, depth, rows}, ds_columns, dk, block, false, a.emulated, queries_of);
    product(ds_rows, k_across, dq + at, w.dp, false, a.emulated, keys_of);
  }
}

// Stores x[d][key] as rows.
void store_keys(void* to, const AttentionArgs& a, int64_t stride, const AmxBackwardScratch& w, const float* x,
                int64_t j0, float factor) {
  int64_t n = least(block, a.keys - j0);
  transpose_columns(w.rows, x, w.dp, n);
  for (int64_t r = 0; r < n; ++r) store_head_row(to, a, (j0 + r) * stride, w.rows + r * w.dp, factor);
}

void backward(const AttentionGradArgs* chunks, int64_t part, int64_t parts, float* scratch) {
  const int64_t heads = chunks[0].forward.heads, passes = chunks[0].forward.chunks * heads;
  AmxBackwardScratch w(chunks[0].forward, scratch);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t head = pass % heads;
    const AttentionGradArgs& g = chunks[pass / heads];
    const AttentionArgs& a = g.forward;
    int64_t rows = a.padded, blocks = (a.keys + block - 1) / block;
    pack_head(g, w, head);
    for (int64_t s = part; s < g.segments; s += parts) {
      float* dq = g.partial ? g.partial + (s * passes + pass) * rows * w.dp : s == part ? w.dq : w.segment;
      zero(dq, rows * w.dp);
      for (int64_t b = s; b < blocks; b += g.segments) {
        int64_t at = passes > 1 ? b * block * w.dp : 0;
        if (pass == 0) zero(w.dk + at, block * w.dp), zero(w.dv + at, block * w.dp);
        backward_block(g, w, head, b * block, dq, w.dk + at, w.dv + at);
        if (pass + 1 < passes) continue;
        store_keys(g.dk, a, a.k_stride, w, w.dk + at, b * block, a.scale);
        store_keys(g.dv, a, a.v_stride, w, w.dv + at, b * block, 1.0f);
      }
      if (!g.partial && s != part)
        for (int64_t i = 0; i < rows * w.dp; i += lanes) store(w.dq + i, load(w.dq + i) + load(dq + i));
    }
    if (g.partial) continue;
    for (int64_t t = 0; t < a.queries; ++t)
      store_head_row(g.dq, a, head * a.head_dim + t * a.q_stride, w.dq + t * w.dp, a.scale);
  }
}

void reduce(const AttentionGradArgs& g, int64_t begin, int64_t end, float* scratch) {
  reduce_rows(g, begin, end, scratch, up(g.forward.head_dim, width));
}

}  // namespace

const AttentionFunctions attention_amx_functions = {width, pack_keys, forward, backward, reduce};

}  // namespace crest::cpu::CREST_ISA
