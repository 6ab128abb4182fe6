// Communication runs on its own stream, so that a backend can overlap it with computation.
#include "passes/pass.h"
#include "program/op.h"

namespace crest {

void assign_streams(Program& program, const PassContext&) {
  for (auto& instr : program.code)
    if (instr.op->op_class == OpClass::communication) instr.stream = Stream::comm;
}

}  // namespace crest
