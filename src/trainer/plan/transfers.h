// Transfers between host and device memory next to computation.
#pragma once
#include <functional>

#include "plan/compile.h"

namespace crest {

// The seconds by which transfers lengthen one run of a Program. The instructions run on their
// streams, in the Program's order and with its waits. seconds: of each instruction except
// transfers. link: bytes/s in one direction; both directions run at once.
double exposed_transfers(const CompiledProgram& program, const std::function<double(size_t instr)>& seconds,
                         double link);

}  // namespace crest
