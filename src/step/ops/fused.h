// Bodies of fused instructions, for passes and kernels.
#pragma once
#include "program/program.h"

namespace crest {

// Whether an instruction makes 8-bit rows, maybe with their transpose (quantize, quantize_blocks),
// or a transpose alone (quantize_columns, quantize_blocks_columns); one of both.
bool quantizes_rows(const Instr& instr);
bool quantizes_columns(const Instr& instr);
bool quantizes(const Instr& instr);
// Whether an instruction of a body works on its input 0 and has no result for the rest of the body:
// a column sum, or quantization.
bool ends_body(const Instr& instr);

}  // namespace crest
