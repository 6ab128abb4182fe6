// Gradient of a bias: column sums.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  rules::out_sum(c, 1, rules::gradient(c, c.in(0).dtype), {c.in(0).shape.back()});
}

static Cost cost(const Program& p, const Instr& i) { return traffic_with_flops(p, i, double(p.at(i.in[0]).numel())); }

const OpDef op_bias_grad = {.name = "bias_grad",
                            .help = "dy[..,N], [acc[N]] -> db[N]: column sums (+ acc)",
                            .op_class = OpClass::reduction,
                            .infer = infer,
                            .cost = cost,
                            .accumulators = {{0, 1}}};

}  // namespace crest
