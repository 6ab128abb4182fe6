// Places of the parts of attention in a thread's scratch. Used by the kernels of every instruction
// set, and by the host, which plans the size also for classes of processors other than this
// machine's. So everything here has internal linkage: an inline function shared with the host would
// be compiled for the wrong instruction set and merged.
#pragma once
#include "backend/cpu/simd/amx.h"
#include "backend/cpu/simd/attention.h"

namespace crest::cpu {
namespace {

constexpr int64_t attention_block = 64;  // queries and keys of a tile: a 64 x 64 float tile is 16 KiB

inline int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Regions of floats, one after the other. Addresses are numbers: a plan has no memory, and asks
// with base 0 for the size.
struct Arena {
  uintptr_t at;
  explicit Arena(float* base) : at((uintptr_t)base) {}
  float* take(int64_t floats) {
    auto* p = (float*)at;
    at += (uintptr_t)rounded_up(floats, 16) * sizeof(float);
    return p;
  }
  // bf16 of `rows` rows of `width` elements.
  uint16_t* take_bf16(int64_t rows, int64_t width) { return (uint16_t*)take(rows * width / 2); }
  int64_t floats_since(float* base) const { return (int64_t)((at - (uintptr_t)base) / sizeof(float)); }
};

// With vectors of `lanes` floats: keys and values of one head as floats, then the scratch of one
// query block.
struct ForwardScratch {
  float *k, *v, *q, *qt, *s, *o, *m, *l, *alpha;
  int64_t size;  // floats
  inline ForwardScratch(const AttentionArgs& a, int64_t lanes, float* base) {
    Arena w(base);
    constexpr int64_t block = attention_block;
    int64_t dp = rounded_up(a.head_dim, lanes), keys = rounded_up(a.keys, block);
    k = w.take(keys * dp), v = w.take(keys * dp);
    q = w.take(block * dp), qt = w.take(dp * block);
    s = w.take(block * block), o = w.take(block * dp);
    m = w.take(block), l = w.take(block), alpha = w.take(block);
    size = w.floats_since(base);
  }
};

// One query head (q, d_o and dq of all its rows), one key block, and the tile between them.
struct BackwardScratch {
  float *q, *d_o, *dq, *segment, *lse, *d, *k, *kt, *vt, *p, *ds, *dk, *dv;
  uint32_t* words;
  int64_t size;
  inline BackwardScratch(const AttentionArgs& a, int64_t lanes, float* base) {
    Arena w(base);
    constexpr int64_t block = attention_block;
    int64_t dp = rounded_up(a.head_dim, lanes), rows = a.padded;
    // Several query heads or chunks add to dk and dv of all key blocks; one finishes a block at a
    // time.
    int64_t keys = a.heads * a.chunks > 1 ? rounded_up(a.keys, block) : block;
    q = w.take(rows * dp), d_o = w.take(rows * dp), dq = w.take(rows * dp), segment = w.take(rows * dp);
    lse = w.take(rows), d = w.take(rows);
    k = w.take(block * dp), kt = w.take(dp * block), vt = w.take(dp * block);
    p = w.take(block * block), ds = w.take(block * block);
    dk = w.take(keys * dp), dv = w.take(keys * dp);
    words = (uint32_t*)w.take(block + 4 + 64);
    size = w.floats_since(base);
  }
};

// The same on matrix units: operands are bf16, heads are padded to slivers of 32.
struct AmxForwardScratch {
  uint16_t *k, *v, *q, *p;
  float *s, *o, *rows, *m, *l, *alpha;
  int64_t dp, size;
  inline AmxForwardScratch(const AttentionArgs& a, float* base) {
    Arena w(base);
    constexpr int64_t block = attention_block;
    dp = rounded_up(a.head_dim, amx_width);
    int64_t keys = rounded_up(a.keys, block);
    k = w.take_bf16(keys, dp), v = w.take_bf16(keys, dp);
    q = w.take_bf16(block, dp), p = w.take_bf16(block, block);
    s = w.take(block * block), o = w.take(dp * block), rows = w.take(block * dp);
    m = w.take(block), l = w.take(block), alpha = w.take(block);
    size = w.floats_since(base);
  }
};

// One query head in both formats, one key block, and the tile between them.
struct AmxBackwardScratch {
  uint16_t *q, *q_across, *d_o, *d_o_across, *k, *v, *k_across, *p_columns, *ds_columns, *ds_rows;
  float *dq, *segment, *lse, *d, *p, *ds, *dk, *dv, *rows;  // dk and dv: [key block][d][key]
  uint32_t* words;
  int64_t dp, size;
  inline AmxBackwardScratch(const AttentionArgs& a, float* base) {
    Arena w(base);
    constexpr int64_t block = attention_block;
    dp = rounded_up(a.head_dim, amx_width);
    int64_t queries = a.padded, keys = a.heads * a.chunks > 1 ? rounded_up(a.keys, block) : block;
    for (uint16_t** to : {&q, &q_across, &d_o, &d_o_across}) *to = w.take_bf16(queries, dp);
    for (uint16_t** to : {&k, &v, &k_across}) *to = w.take_bf16(block, dp);
    for (uint16_t** to : {&p_columns, &ds_columns, &ds_rows}) *to = w.take_bf16(block, block);
    dq = w.take(queries * dp), segment = w.take(queries * dp);
    lse = w.take(queries), d = w.take(queries);
    p = w.take(block * block), ds = w.take(block * block);
    dk = w.take(keys * dp), dv = w.take(keys * dp), rows = w.take(block * dp);
    words = (uint32_t*)w.take(block + 4 + 64);
    size = w.floats_since(base);
  }
};

}  // namespace
}  // namespace crest::cpu
