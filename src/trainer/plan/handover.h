// Programs of a session pass values through persistent memory: weights, states, gradients.
#pragma once
#include "plan/compile.h"

namespace crest {

// Simulates two training steps, each followed by evaluation and sampling. Throws an internal error
// if a Program reads a value with another placement than the last writer left, or if collectives
// have no order.
void verify_handover(const CompiledSession& session);

}  // namespace crest
