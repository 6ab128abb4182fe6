// Host side of dropout as part of another operation.
#pragma once
#include "backend/cpu/simd/dropout.h"
#include "backend/dropout_place.h"

namespace crest::cpu {

// Of rows of x, with the attributes of the call's instruction; none if input `scalars` is absent.
inline DropoutRows dropout_rows(const KernelCall& c, size_t scalars, const Value& x) {
  if (!c.has(scalars)) return {};
  const DropoutPlace at = dropout_place(c, x.shape);
  return {c.input<Scalars>(scalars),
          uint32_t(c.instr.attrs.integer("rng_id")),
          c.instr.attrs.number("p"),
          at.rows,
          at.first,
          at.before,
          at.half,
          at.upper};
}

}  // namespace crest::cpu
