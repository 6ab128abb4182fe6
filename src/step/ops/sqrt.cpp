// Square root.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/place.h"

namespace crest {

const OpDef op_sqrt = {.name = "sqrt",
                       .inputs = in::sqrt::names,
                       .outputs = out::sqrt::names,
                       .help = "x -> square root of x",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .place = cut<"*_ -> *_; ..">,
                       .cost = elementwise_cost<1>,
                       .may_overlay = {{out::sqrt::y, in::sqrt::x}}};

}  // namespace crest
