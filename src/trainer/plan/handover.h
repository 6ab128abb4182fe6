// Programs of a session hand values to each other
// in persistent memory: weights, states, gradients.
#pragma once
#include "plan/compile.h"

namespace crest {

// Follows two training steps, with evaluation and sampling after each. Throws an internal error
// where a Program reads a value with another placement than the Program before has left, or where
// collectives have no order.
void verify_handover(const CompiledSession& session);

}  // namespace crest
