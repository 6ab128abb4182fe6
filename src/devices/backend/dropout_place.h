// Dropout counts the elements of a whole sample. This is where a rank's elements begin.
#pragma once
#include "backend/backend.h"

namespace crest {

// Row r of a value is row (r + first) % rows + before of sample (r + first) / rows.
struct DropoutPlace {
  int64_t rows = 1, first = 0, before = 0;
};

// Of rows of shape x, whose first dimension is the sample. If ranks share rows or heads (attribute
// `axes`): with `seq`, x is this rank's part of the rows of all samples, `seq` rows each; without
// it, of the second dimension.
inline DropoutPlace dropout_place(const KernelCall& c, const Shape& x) {
  if (c.instr.attrs.has("seq")) return {c.instr.attrs.integer("seq"), c.part_begin(x.rows()), 0};
  const int64_t rows = x[0] ? x.rows() / x[0] : 1;
  return {rows, 0, c.part_begin(rows)};
}

}  // namespace crest
