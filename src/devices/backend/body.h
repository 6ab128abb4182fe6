// Shared by kernels of fused instructions: where a call has the values of its body.
#pragma once
#include "backend/backend.h"

namespace crest {

// The address of a value of the call's body: an output, an input, or a value in an input's memory
// (a later version, a view). Null: the call does not have it.
void* address_in_body(const KernelCall& call, ValueId v);

}  // namespace crest
