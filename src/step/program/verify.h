// The rules for every Program. Checked after each pass.
#pragma once
#include "program/program.h"

namespace crest {

// Throws an internal error with the instruction's name if a rule is broken: unique names,
// definition before use, one producer per value, types as inferred, an origin on every instruction,
// no read of a consumed version. `after` is the name of the pass for the message.
void verify(const Program& program, std::string_view after);

}  // namespace crest
