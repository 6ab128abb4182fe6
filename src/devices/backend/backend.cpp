#include "backend/backend.h"

#include "comm/mesh_groups.h"
#include "core/error.h"
#include "program/op.h"

namespace crest {

const char* KernelCall::instr_name() const { return instr.op->name; }

int KernelCall::index() const { return groups ? groups->index(axes_of(instr)) : 0; }

Communicator& KernelCall::group() const {
  if (!groups) fail_internal("a rank without others communicates", instr_name());
  return groups->group(axes_of(instr));
}

}  // namespace crest
