// Communication runs on its own lane, so that a backend can overlap it with compute.
#include "ops/op.h"
#include "passes/pass.h"

namespace crest {

void assign_lanes(Program& program, const PassContext&) {
  for (auto& instr : program.code)
    if (instr.op->op_class == OpClass::communication) instr.lane = Lane::comm;
}

}  // namespace crest
