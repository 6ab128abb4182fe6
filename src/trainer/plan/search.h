// Finds the largest micro batch that fits.
#pragma once
#include "plan/compile.h"

namespace crest {

// The largest micro batch (at most 2^20) with a plan within limit_bytes; 0 if not even 1 fits.
// Persistent bytes do not depend on the batch. The transient arena is nearly affine in it, and
// falls only where the loss gets one more chunk. So the search finds the number of chunks first,
// then the batch. Two plans give a line; its crossing with the limit is verified (it fits, the next
// one does not) and corrected until both hold. It usually takes six plans, without preparing
// kernels or allocating memory.
int64_t largest_batch(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit_bytes);
// The same for an already compiled session: its plan is one of the two points.
int64_t largest_batch(const CompiledSession& session, const SessionUse& use, int64_t limit_bytes);

}  // namespace crest
