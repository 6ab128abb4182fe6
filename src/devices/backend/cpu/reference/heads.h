// Where the heads of an interleaved qkv[B,T,W] lie: per token query heads, then key heads, then
// value heads.
#pragma once
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

struct Heads {
  int64_t batch, seq, heads, kv_heads, dim;

  Heads(const KernelCall& c, const Tensor& qkv)
      : batch(qkv.size(0)),
        seq(qkv.size(1)),
        heads(c.instr.attrs.integer("heads")),
        kv_heads(c.instr.attrs.integer("kv_heads")),
        dim(qkv.size(2) / (heads + 2 * kv_heads)) {}

  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  int64_t kv_of(int64_t head) const { return head / (heads / kv_heads); }
  // Index of the first element of a head's vector at (sample, token).
  int64_t q(int64_t b, int64_t t, int64_t head) const { return (b * seq + t) * width() + head * dim; }
  int64_t k(int64_t b, int64_t t, int64_t kv) const { return q(b, t, heads + kv); }
  int64_t v(int64_t b, int64_t t, int64_t kv) const { return q(b, t, heads + kv_heads + kv); }
  int64_t o(int64_t b, int64_t t, int64_t head) const { return ((b * seq + t) * heads + head) * dim; }
};

}  // namespace crest::reference
