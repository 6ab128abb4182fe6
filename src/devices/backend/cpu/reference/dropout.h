// Dropout as part of an operation: whether an element is kept follows from its coordinates
// (core/random.h).
#pragma once
#include "backend/cpu/reference/tensor.h"
#include "backend/dropout_place.h"
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
    const DropoutPlace at = dropout_place(c, shape);
    const int64_t columns = shape.rank() == 1 ? 1 : shape.back();
    per_sample_ = at.rows * columns, first_ = at.first * columns, before_ = at.before * columns;
  }
  // Element e with value x after dropout.
  double operator()(int64_t e, double x) const {
    if (!scalars_) return x;
    const int64_t at = e + first_;
    uint64_t stream = dropout_stream(uint64_t(scalars_->sample_base + at / per_sample_), rng_id_);
    const auto element = uint64_t(at % per_sample_ + before_);
    return uniform(random_bits(scalars_->seed, stream, element)) >= p_ ? x / (1 - p_) : 0;
  }

 private:
  const Scalars* scalars_ = nullptr;
  double p_ = 0;
  uint32_t rng_id_ = 0;
  int64_t per_sample_ = 0, first_ = 0, before_ = 0;  // elements
};

}  // namespace crest::reference
