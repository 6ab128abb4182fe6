// What passes, kernels and checks know about collectives besides their definition.
#pragma once
#include "program/program.h"

namespace crest {

// Elements from the first tensor of an all_reduce with attribute `flat` to the end of the last:
// with the padding between them, one collective.
int64_t flat_elements(const Program& program, const Instr& instr);
bool is_flat(const Instr& instr);
// Bytes of the 16-bit copies of what an all_reduce sends; 0 if it sends its own memory.
size_t wire_bytes(const Program& program, const Instr& instr);

}  // namespace crest
