// Dropout as part of an operation: whether an element is kept follows from its coordinates
// (core/random.h).
#pragma once
#include "backend/cpu/reference/tensor.h"
#include "core/random.h"

namespace crest::reference {

class Dropout {
 public:
  // For values of this shape (first dimension: the sample); drops nothing if input `scalars` is
  // absent.
  Dropout(const KernelCall& c, size_t scalars_in, const Shape& shape) {
    if (!c.has(scalars_in)) return;
    scalars_ = &scalars(c, scalars_in);
    p_ = c.instr.attrs.number("p");
    rng_id_ = uint32_t(c.instr.attrs.integer("rng_id"));
    per_sample_ = shape[0] ? shape.numel() / shape[0] : 0;
  }
  // Element e with value x after dropout.
  double operator()(int64_t e, double x) const {
    if (!scalars_) return x;
    uint64_t stream = dropout_stream(uint64_t(scalars_->sample_base + e / per_sample_), rng_id_);
    return uniform(random_bits(scalars_->seed, stream, uint64_t(e % per_sample_))) >= p_ ? x / (1 - p_) : 0;
  }

 private:
  const Scalars* scalars_ = nullptr;
  double p_ = 0;
  uint32_t rng_id_ = 0;
  int64_t per_sample_ = 0;
};

}  // namespace crest::reference
