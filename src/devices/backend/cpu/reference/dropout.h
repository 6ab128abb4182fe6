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
    at_ = dropout_place(c, shape), columns_ = shape.rank() == 1 ? 1 : shape.back();
  }
  // Element e with value x after dropout.
  double operator()(int64_t e, double x) const {
    if (!scalars_) return x;
    const int64_t row = e / columns_;
    uint64_t stream = dropout_stream(uint64_t(scalars_->sample_base + (row + at_.first) / at_.rows), rng_id_);
    const auto element = uint64_t(at_.in_sample(row) * columns_ + e % columns_);
    return uniform(random_bits(scalars_->seed, stream, element)) >= p_ ? x / (1 - p_) : 0;
  }

 private:
  const Scalars* scalars_ = nullptr;
  double p_ = 0;
  uint32_t rng_id_ = 0;
  DropoutPlace at_;
  int64_t columns_ = 1;
};

}  // namespace crest::reference
