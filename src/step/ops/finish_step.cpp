// The end of a step: the step counters and the dynamic loss scale of fp16 (Micikevicius et al.
// 2018, section 3.2).
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::scalars(c, in::finish_step::scalars);
  if (rules::flag(c, "dynamic")) {
    rules::integer(c, "growth_interval", 1);
    double low = rules::number(c, "min_scale"), high = rules::number(c, "max_scale");
    c.check(low > 0 && high >= low, "'min_scale' must be positive and at most 'max_scale'");
  }
  c.out_in_place(in::finish_step::scalars);
}

const OpDef op_finish_step = {.name = "finish_step",
                              .inputs = in::finish_step::names,
                              .outputs = out::finish_step::names,
                              .help = "scalars -> scalars: step counters and loss scale after a success or a skip",
                              .op_class = OpClass::optimizer,
                              .infer = infer,
                              .place = cut<"- -> -">,
                              .cost = traffic};

}  // namespace crest
