// The element-wise optimizers: one instruction changes a parameter and its states element by
// element (ops/update.h). OP(x, inputs, outputs) as in ops/index.h. x is also the name of the rule
// in ops/update_rules.h. The kernels of every backend are generated from this rule.
#pragma once

#define CREST_UPDATE_OPS(OP)                                        \
  OP(adamw, (scalars, master, m, v, g, w, c), (master, m, v, w, c)) \
  OP(sgd, (scalars, master, m, g, w), (master, m, w))               \
  OP(lion, (scalars, master, m, g, w), (master, m, w))
