// Host side of dropout as part of another operation (device/dropout.h).
#pragma once
#include <cmath>

#include "backend/cuda/device/dropout_rule.h"
#include "backend/cuda/kernel.h"
#include "backend/dropout_place.h"

namespace crest::cuda {

// By the attributes of a call's instruction and the scalars at an input.
inline DropoutRule dropout_rule(const KernelCall& c, size_t scalars) {
  const double p = c.instr.attrs.number("p");
  // uniform(word) >= p as a comparison of integers
  return {c.input<Scalars>(scalars), uint32_t(c.instr.attrs.integer("rng_id")), uint32_t(std::ceil(p * 0x1p24)),
          float(1 / (1 - p))};
}

// Of rows of x; none if the input is absent.
inline DropoutRows dropout_rows(const KernelCall& c, size_t scalars, const Value& x) {
  if (!c.has(scalars)) return {};
  const DropoutPlace at = dropout_place(c, x.shape);
  return {dropout_rule(c, scalars), unsigned(at.rows), unsigned(at.first),
          unsigned(at.before),      unsigned(at.half), unsigned(at.upper)};
}

}  // namespace crest::cuda
