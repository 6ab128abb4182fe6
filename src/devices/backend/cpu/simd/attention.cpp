#include "backend/cpu/simd/attention_parts.h"

namespace crest::cpu::CREST_ISA {
namespace {

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
  ForwardScratch w(a, lanes, scratch);
  int64_t j0 = first_block(a), at = j0 * up(a.head_dim, lanes), n = a.keys - j0;
  pack(w.k + at, a.k, a, a.k_stride, j0, n, up(n, block), 1.0f);
  pack(w.v + at, a.v, a, a.v_stride, j0, n, up(n, block), 1.0f);
}

void forward(const AttentionArgs& a, int64_t index, float* scratch) {
  ForwardScratch w(a, lanes, scratch);
  int64_t dp = up(a.head_dim, lanes), blocks = (a.queries + block - 1) / block;
  int64_t head = index / blocks, i0 = index % blocks * block, nq = least(block, a.queries - i0);
  const void* q = row_of(a.q, a.dtype, head * a.head_dim);
  pack(w.q, q, a, a.q_stride, i0, nq, block, a.scale * log2_e);
  transpose(w.qt, block, w.q, dp, a.head_dim);
  const Softmax softmax{w.s, w.m, w.l, w.alpha, 1.0f, block};  // q holds the factor
  for (int64_t i = 0; i < block; ++i) w.m[i] = -infinity, w.l[i] = 0;
  int64_t end = a.causal ? least(a.keys, a.first_position + i0 + nq) : a.keys;
  const FirstKeys firsts(a, i0);
  int64_t begin = firsts.lowest / block * block;
  for (int64_t j0 = begin; j0 < end; j0 += block) {
    int64_t nk = least(block, end - j0);
    int64_t delta = a.causal ? a.first_position + i0 - j0 : block;
    product<false, Start::zero>(up(nk, tile_rows), block, a.head_dim, w.k + j0 * dp, dp, w.qt, block, w.s, block,
                                {Band::keys_by_queries, delta});
    online_softmax(a, softmax, firsts, i0, j0, nk, delta < nk - 1 || firsts.highest > j0);
    if (a.p > 0) drop_transposed(a, w.s, a.first_head + head, i0, j0, nk);
    Band band{Band::sum_over_keys, delta};
    if (j0 == begin)
      product<true, Start::zero>(block, dp, nk, w.s, block, w.v + j0 * dp, dp, w.o, dp, band);
    else
      product<true, Start::scaled>(block, dp, nk, w.s, block, w.v + j0 * dp, dp, w.o, dp, band, w.alpha);
  }
  for (int64_t i = 0; i < nq; ++i) {
    store_head_row(a.o, a, head * a.head_dim + (i0 + i) * a.o_stride, w.o + i * dp, 1.0f / w.l[i]);
    if (a.lse) a.lse[head * a.lse_stride + i0 + i] = w.m[i] * ln_2 + __builtin_logf(w.l[i]);
  }
}

void pack_head(const AttentionGradArgs& g, const BackwardScratch& w, int64_t head) {
  const AttentionArgs& a = g.forward;
  int64_t dp = up(a.head_dim, lanes), queries = a.queries - a.lead, behind = a.padded - a.lead;
  zero(w.q, a.lead * dp), zero(w.d_o, a.lead * dp);
  pack(w.q + a.lead * dp, row_of(a.q, a.dtype, head * a.head_dim), a, a.q_stride, 0, queries, behind, a.scale * log2_e);
  pack(w.d_o + a.lead * dp, row_of(g.d_o, a.dtype, head * a.head_dim), a, a.o_stride, 0, queries, behind, 1.0f);
  for (int64_t t = 0; t < a.padded; ++t) {
    w.lse[t] = infinity, w.d[t] = 0;  // rows of padding: probability 0
    const int64_t query = t - a.lead;
    if (query < 0 || query >= queries) continue;
    w.lse[t] = a.lse[head * a.lse_stride + query] * log2_e;
    const void* row = row_of((const void*)a.o, a.dtype, head * a.head_dim + query * a.o_stride);
    if (query + rows_ahead < queries)
      prefetch_row((const float*)row_of(row, a.dtype, rows_ahead * a.o_stride), a.head_dim);
    const float* o = as_floats(row, a.dtype, a.head_dim, w.p);
    Vf s{};
    for_vectors(a.head_dim, [&](int64_t i, int64_t k) { s += load_some(o + i, k) * load(w.d_o + t * dp + i); });
    w.d[t] = sum(s);
  }
}

void backward_block(const AttentionGradArgs& g, const BackwardScratch& w, int64_t head, int64_t j0, float* dq,
                    float* dk, float* dv) {
  const AttentionArgs& a = g.forward;
  int64_t dp = up(a.head_dim, lanes), nk = least(block, a.keys - j0);
  int64_t end = last_query(a, j0 + nk - 1) + 1, begin = first_query_block(a, j0);
  if (begin >= end) return;
  pack(w.k, a.v, a, a.v_stride, j0, nk, block, 1.0f);
  transpose(w.vt, block, w.k, dp, a.head_dim);
  pack(w.k, a.k, a, a.k_stride, j0, nk, block, 1.0f);
  transpose(w.kt, block, w.k, dp, a.head_dim);
  const BackwardTile tile{w.p, w.ds, w.lse, w.d, 1.0f, w.words};  // q holds the factor
  for (int64_t i0 = begin; i0 < end; i0 += block) {
    int64_t nq = least(block, a.queries - i0), mq = up(nq, tile_rows);
    const FirstKeys firsts(a, i0);
    if (firsts.lowest >= j0 + nk) continue;
    const float* q = w.q + i0 * dp;
    const float* d_o = w.d_o + i0 * dp;
    int64_t delta = a.causal ? a.first_position + i0 - j0 : block;
    Band tiles{Band::queries_by_keys, delta}, keys{Band::sum_over_keys, delta}, queries{Band::sum_over_queries, delta};
    product<false, Start::zero>(mq, block, a.head_dim, q, dp, w.kt, block, w.p, block, tiles);
    product<false, Start::zero>(mq, block, a.head_dim, d_o, dp, w.vt, block, w.ds, block, tiles);
    backward_tile(a, tile, firsts, a.first_head + head, i0, j0, delta < block - 1);
    product<true, Start::add>(block, dp, nq, w.p, block, d_o, dp, dv, dp, queries);
    product<true, Start::add>(block, dp, nq, w.ds, block, q, dp, dk, dp, queries);
    product<false, Start::add>(mq, dp, nk, w.ds, block, w.k, dp, dq + i0 * dp, dp, keys);
  }
}

void backward(const AttentionGradArgs* chunks, int64_t part, int64_t parts, float* scratch) {
  const int64_t heads = chunks[0].forward.heads, passes = chunks[0].forward.chunks * heads;
  BackwardScratch w(chunks[0].forward, lanes, scratch);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t head = pass % heads;
    const AttentionGradArgs& g = chunks[pass / heads];
    const AttentionArgs& a = g.forward;
    int64_t dp = up(a.head_dim, lanes), rows = a.padded, blocks = (a.keys + block - 1) / block;
    pack_head(g, w, head);
    for (int64_t s = part; s < g.segments; s += parts) {
      float* dq = g.partial ? g.partial + (s * passes + pass) * rows * dp : s == part ? w.dq : w.segment;
      zero(dq, rows * dp);
      for (int64_t b = s; b < blocks; b += g.segments) {
        float* dk = passes > 1 ? w.dk + b * block * dp : w.dk;
        float* dv = passes > 1 ? w.dv + b * block * dp : w.dv;
        if (pass == 0) zero(dk, block * dp), zero(dv, block * dp);
        backward_block(g, w, head, b * block, dq, dk, dv);
        if (pass + 1 < passes) continue;
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
    for (int64_t t = 0; t < a.queries - a.lead; ++t)
      store_head_row(g.dq, a, head * a.head_dim + t * a.q_stride, w.dq + (a.lead + t) * dp, a.scale);
  }
}

void reduce(const AttentionGradArgs& g, int64_t begin, int64_t end, float* scratch) {
  reduce_rows(g, begin, end, scratch, up(g.forward.head_dim, lanes));
}

}  // namespace

const AttentionFunctions attention_functions = {lanes, pack_keys, forward, backward, reduce};

}  // namespace crest::cpu::CREST_ISA
