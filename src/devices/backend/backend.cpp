#include "backend/backend.h"

#include "program/op.h"

namespace crest {

const char* KernelCall::instr_name() const { return instr.op->name; }

}  // namespace crest
