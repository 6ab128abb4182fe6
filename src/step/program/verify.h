// The rules that every Program obeys. Checked after each pass.
#pragma once
#include "program/program.h"

namespace crest {

// Throws an internal error that names the instruction if a rule is broken: unique names, definition
// before use, one producer per value, types as inferred, an origin on every instruction, and no
// read of a consumed version. `after` names the pass in the message.
void verify(const Program& program, std::string_view after);

}  // namespace crest
