// Square root.
#include "ops/index.h"
#include "ops/pointwise.h"

namespace crest {

const OpDef op_sqrt = {.name = "sqrt",
                       .help = "x -> square root of x",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .cost = elementwise_cost<1>,
                       .may_overlay = {{0, 0}}};

}  // namespace crest
