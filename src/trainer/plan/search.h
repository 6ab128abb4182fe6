// Finds the largest micro batch that fits.
#pragma once
#include "plan/compile.h"

namespace crest {

// The largest micro batch (at most 2^20) with a plan within limit_bytes; 0: not even 1 fits.
// Persistent bytes do not depend on the batch. The transient arena is nearly affine in the batch.
// It falls only when the loss gets another chunk, so the search first finds the number of chunks,
// then the batch. A line through two plans crosses the limit at the first guess. Further plans
// correct it until it fits and the next batch does not. This usually takes six plans, without
// preparing kernels or allocating memory.
int64_t largest_batch(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit_bytes);
// For a compiled session: its plan is one of the two points.
int64_t largest_batch(const CompiledSession& session, const SessionUse& use, int64_t limit_bytes);

}  // namespace crest
