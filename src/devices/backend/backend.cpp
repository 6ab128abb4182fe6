#include "backend/backend.h"

#include "comm/mesh_groups.h"
#include "core/error.h"
#include "program/op.h"

namespace crest {

const char* KernelCall::instr_name() const { return instr.op->name; }

int KernelCall::index() const { return groups ? groups->index(axes_of(instr)) : 0; }

int64_t KernelCall::part_begin(int64_t size) const {
  if (!groups || !instr.attrs.has("axes")) return 0;
  return groups->index(axes_of(instr).without(Axis::context)) * size;
}

static bool has_chunks(const KernelCall& c) {
  return c.groups && c.instr.attrs.has("axes") && axes_of(c.instr).has(Axis::context);
}
int64_t KernelCall::chunk_ranks() const { return has_chunks(*this) ? groups->mesh().size(Axis::context) : 1; }
int64_t KernelCall::chunk_place() const { return has_chunks(*this) ? groups->index(Axis::context) : 0; }

Communicator& KernelCall::group() const {
  if (!groups) fail_internal("a rank without others communicates", instr_name());
  return groups->group(axes_of(instr));
}

}  // namespace crest
