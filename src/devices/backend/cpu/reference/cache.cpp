// Decoding: appends keys and values to cache[B,2,kv_heads,C,D] and attends over it.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/heads.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

void cache_append(const KernelCall& c) {
  Tensor qkv = input(c, in::cache_append::qkv), cache = output(c, out::cache_append::cache);
  Heads h(c, qkv);
  const Scalars& s = scalars(c, in::cache_append::scalars);
  int64_t positions = cache.size(3);
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t kv = 0; kv < h.kv_heads; ++kv)
      for (int64_t t = 0; t < std::min<int64_t>(h.seq, s.length) && s.position + t < positions; ++t)
        for (int64_t d = 0; d < h.dim; ++d) {
          int64_t key = ((b * 2 * h.kv_heads + kv) * positions + s.position + t) * h.dim + d;
          cache.set(key, qkv[h.k(b, t, kv) + d]);
          cache.set(key + h.kv_heads * positions * h.dim, qkv[h.v(b, t, kv) + d]);
        }
}

void cached_attention(const KernelCall& c) {
  Tensor qkv = input(c, in::cached_attention::qkv), cache = input(c, in::cached_attention::cache),
         out = output(c, out::cached_attention::o);
  Heads h(c, qkv);
  const Scalars& s = scalars(c, in::cached_attention::scalars);
  double scale = c.instr.attrs.number("scale");
  int64_t window = c.instr.attrs.integer("window", 0);
  int64_t positions = cache.size(3), values = h.kv_heads * positions * h.dim;
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t t = 0; t < h.seq; ++t) {
        int64_t n = t < s.length ? std::min<int64_t>(s.position + t + 1, positions) : 0;
        int64_t first = window ? std::max<int64_t>(n - window, 0) : 0;
        int64_t keys = (b * 2 * h.kv_heads + h.kv_of(head)) * positions * h.dim;
        std::vector<double> p(static_cast<size_t>(n));
        double largest = -INFINITY, sum = 0;
        for (int64_t j = first; j < n; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < h.dim; ++d) dot += qkv[h.q(b, t, head) + d] * cache[keys + j * h.dim + d];
          p[size_t(j)] = scale * dot;
          largest = std::max(largest, p[size_t(j)]);
        }
        for (int64_t j = first; j < n; ++j) sum += p[size_t(j)] = std::exp(p[size_t(j)] - largest);
        for (int64_t d = 0; d < h.dim; ++d) {
          double o = 0;
          for (int64_t j = first; j < n; ++j) o += p[size_t(j)] / sum * cache[keys + values + j * h.dim + d];
          out.set(h.o(b, t, head) + d, o);
        }
      }
}

}  // namespace crest::reference
