// What passes and kernels share about the bodies of fused instructions.
#pragma once
#include "program/program.h"

namespace crest {

// Whether an instruction is quantize or quantize_columns.
bool quantizes(const Instr& instr);
// Whether an instruction of a body works on its input 0 and makes nothing that the body reads
// again: a column sum, or quantization.
bool ends_body(const Instr& instr);

}  // namespace crest
