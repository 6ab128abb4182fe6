#include "backend/body.h"

namespace crest {

void* address_in_body(const KernelCall& call, ValueId v) {
  const Program& body = *call.instr.body;
  for (size_t o = 0; o < body.outputs.size(); ++o)
    if (body.outputs[o] == v) return call.out[o];
  const Layout& layout = body.at(v).layout;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (body.inputs[i] == v) return call.in[i];
    if (body.inputs[i] == layout.storage)
      return static_cast<char*>(call.in[i]) + layout.offset * int64_t(size_of(body.at(v).dtype));
  }
  return nullptr;
}

}  // namespace crest
