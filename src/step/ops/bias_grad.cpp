// Gradient of a bias: column sums.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, in::bias_grad::dy, 1);
  rules::floating(c, in::bias_grad::dy);
  const Value& dy = c.in(in::bias_grad::dy);
  rules::out_sum(c, in::bias_grad::acc, rules::gradient(c, dy.dtype), {dy.shape.back()});
}

static Cost cost(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(p.at(i.in[in::bias_grad::dy]).numel()));
}

const OpDef op_bias_grad = {.name = "bias_grad",
                            .inputs = in::bias_grad::names,
                            .outputs = out::bias_grad::names,
                            .help = "dy[..,N], [acc[N]] -> db[N]: column sums (+ acc)",
                            .op_class = OpClass::reduction,
                            .infer = infer,
                            .place = cut<"..N, N -> N; ..+ N">,
                            .cost = cost,
                            .accumulators = {{out::bias_grad::db, in::bias_grad::acc}}};

}  // namespace crest
