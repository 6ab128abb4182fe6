// Type rules shared by the pointwise operations.
#pragma once
#include "ops/rules.h"

namespace crest::rules {

// x -> y of the same type.
inline void unary(Infer& c) {
  inputs(c, 1, 1);
  contiguous(c);
  floating(c, 0);
  c.out_like(0);
}

// a, b of the same type -> the same type.
inline void binary(Infer& c) {
  inputs(c, 2, 2);
  contiguous(c);
  floating(c, 0);
  c.same_shape(1, 0);
  c.same_dtype(1, 0);
  c.out_like(0);
}

}  // namespace crest::rules
