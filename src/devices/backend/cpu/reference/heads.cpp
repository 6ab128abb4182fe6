// split_heads makes views (nothing to do); join_heads copies heads back into one tensor.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void split_heads(const KernelCall&) {}

void join_heads(const KernelCall& c) {
  Tensor y = output(c, out::join_heads::qkv);
  int64_t first = 0, width = y.size(2);
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    Tensor x = input(c, i);
    if (!x) continue;
    int64_t heads = x.size(1), seq = x.size(2), dim = x.size(3);
    for (int64_t b = 0; b < x.size(0); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < seq; ++t)
          for (int64_t d = 0; d < dim; ++d) y.set((b * seq + t) * width + first + h * dim + d, x.at(b, h, t, d));
    first += heads * dim;
  }
}

void split_keys(const KernelCall& c) {
  Tensor x = input(c, in::split_keys::qkv), q = output(c, out::split_keys::q), kv = output(c, out::split_keys::kv);
  const int64_t width = x.size(2), queries = q.size(2), keys = width - queries;
  for (int64_t r = 0; r < x.size(0) * x.size(1); ++r) {
    for (int64_t i = 0; i < queries; ++i) q.set(r * queries + i, x[r * width + i]);
    for (int64_t i = 0; i < keys; ++i) kv.set(r * keys + i, x[r * width + queries + i]);
  }
}

void join_keys(const KernelCall& c) {
  Tensor q = input(c, in::join_keys::q), kv = input(c, in::join_keys::kv), y = output(c, out::join_keys::qkv);
  const int64_t width = y.size(2), queries = q.size(2), keys = width - queries;
  for (int64_t r = 0; r < y.size(0) * y.size(1); ++r) {
    for (int64_t i = 0; i < queries; ++i) y.set(r * width + i, q[r * queries + i]);
    for (int64_t i = 0; i < keys; ++i) y.set(r * width + queries + i, kv[r * keys + i]);
  }
}

}  // namespace crest::reference
