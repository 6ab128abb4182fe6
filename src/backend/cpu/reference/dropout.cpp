// Dropout: the mask is a function of the element's coordinates (core/random.h).
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "core/random.h"
#include "ops/index.h"

namespace crest::reference {

void dropout(const KernelCall& c) {
  Tensor x = input(c, in::dropout::x), y = output(c, out::dropout::y);
  const Scalars& s = scalars(c, in::dropout::scalars);
  double p = c.instr.attrs.number("p");
  auto rng_id = uint32_t(c.instr.attrs.integer("rng_id"));
  int64_t samples = x.size(0), per_sample = samples ? x.numel() / samples : 0;
  for (int64_t b = 0; b < samples; ++b) {
    uint64_t stream = dropout_stream(uint64_t(s.sample_base + b), rng_id);
    for (int64_t e = 0; e < per_sample; ++e) {
      bool keep = uniform(random_bits(s.seed, stream, uint64_t(e))) >= p;
      y.set(b * per_sample + e, keep ? x[b * per_sample + e] / (1 - p) : 0);
    }
  }
}

}  // namespace crest::reference
