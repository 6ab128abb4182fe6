// The rules every Program obeys; run after each pass.
#pragma once
#include "program/program.h"

namespace crest {

// Throws an internal error naming the instruction when a rule is broken: unique names, definition before use, one
// producer a value, types as inference says, an origin on every instruction, and no read of a consumed version.
// `after` names the pass for the message.
void verify(const Program& program, std::string_view after);

}  // namespace crest
