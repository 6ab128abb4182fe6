// Sum or mean over the ranks of the communicator.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void infer(Infer& c) {
  c.check(c.inputs() >= 1, "needs at least one tensor");
  rules::inputs(c, c.inputs(), c.inputs());
  rules::contiguous(c);
  rules::flag(c, "mean");
  for (size_t i = 0; i < c.inputs(); ++i) {
    rules::floating(c, i);
    c.out_in_place(i);
  }
}

static Cost cost(const Program& p, const Instr& i) {
  double n = 0;
  for (ValueId v : i.in) n += double(p.at(v).numel());
  return traffic_with_flops(p, i, n);
}

const OpDef op_all_reduce = {.name = "all_reduce",
                             .inputs = in::all_reduce::names,
                             .outputs = out::all_reduce::names,
                             .help = "x1, x2, .. -> the same: sum or mean over the ranks, in place",
                             .op_class = OpClass::communication,
                             .infer = infer,
                             .cost = cost};

}  // namespace crest
