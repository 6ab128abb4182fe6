// Dropout counts the elements of a whole sample. This is where a rank's elements begin.
#pragma once
#include "backend/backend.h"
#include "program/chunks.h"

namespace crest {

// Row r of a value is row t + before of sample (r + first) / rows, where t = (r + first) % rows. In
// the upper half of the rows, from `half` on, it is row t + upper.
struct DropoutPlace {
  int64_t rows = 1, first = 0, before = 0, half = INT32_MAX, upper = 0;
  int64_t in_sample(int64_t row) const {
    const int64_t t = (row + first) % rows;
    return t + (t < half ? before : upper);
  }
};

// Of rows of shape x, whose first dimension is the sample. If ranks share rows or heads (attribute
// `axes`): with `seq`, x is this rank's part of the rows of all samples, `seq` rows each; without
// it, of the second dimension. Along the axis context, these rows are two chunks of the sample
// (Placement::chunks).
inline DropoutPlace dropout_place(const KernelCall& c, const Shape& x) {
  if (c.instr.attrs.has("seq")) {
    DropoutPlace at = {c.instr.attrs.integer("seq"), c.part_begin(x.rows())};
    if (c.chunk_ranks() == 1) return at;
    const OwnChunks own(at.rows * c.chunk_ranks(), c.chunk_ranks(), c.chunk_place());
    at.half = own.tokens, at.before = own.first[0], at.upper = own.first[1] - own.tokens;
    return at;
  }
  const int64_t rows = x[0] ? x.rows() / x[0] : 1;
  return {rows, 0, c.part_begin(rows)};
}

}  // namespace crest
