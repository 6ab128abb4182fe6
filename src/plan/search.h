// Searching sizes that fit: how large a micro batch may be.
#pragma once
#include "plan/compile.h"

namespace crest {

// Largest micro batch (at most 2^20) whose plan stays within limit_bytes; 0 when not even 1 does. Persistent bytes do
// not depend on the batch and the transient arena is nearly affine in it: two plans give a line, its crossing with the
// limit is verified (it fits, one more does not) and corrected until both hold. Usually four plans, without kernels
// being prepared or memory taken.
int64_t largest_batch(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit_bytes);
// The same for a session that is compiled already: its plan is one of the two points.
int64_t largest_batch(const CompiledSession& session, const SessionUse& use, int64_t limit_bytes);

}  // namespace crest
