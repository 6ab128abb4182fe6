// What a collective sends.
#pragma once
#include "program/program.h"

namespace crest {

// Bytes that each of `ranks` ranks sends for an instruction that communicates, by a ring:
// 2 (n - 1)/n of the tensors for a sum, (n - 1)/n for the halves of one.
double sent_bytes(const Program& program, const Instr& instr, int64_t ranks);

}  // namespace crest
