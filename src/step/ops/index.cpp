#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest {

const std::vector<const OpDef*>& all_ops() {
#define CREST_OP_ADDRESS(name, inputs, outputs) &op_##name,
  static const std::vector<const OpDef*> ops = {CREST_OPS(CREST_OP_ADDRESS) CREST_QUANTIZED_NORMS(CREST_OP_ADDRESS)};
#undef CREST_OP_ADDRESS
  return ops;
}

}  // namespace crest
