// The bytes sent by a collective.
#pragma once
#include "program/program.h"

namespace crest {

// Bytes sent by each of `ranks` ranks for an instruction, in a ring: 2 (n - 1)/n of the tensors for
// an all-reduce, (n - 1)/n for a reduce-scatter or all-gather.
double sent_bytes(const Program& program, const Instr& instr, int64_t ranks);

}  // namespace crest
