// What kernels of fused instructions share: where a call has the values of its body.
#pragma once
#include "backend/backend.h"

namespace crest {

// The address of a value of the call's body: of an output, of an input, or of what is in an input's
// memory (a later version, a view). Null: the call does not have it.
void* address_in_body(const KernelCall& call, ValueId v);

}  // namespace crest
