// A matrix divided by its Frobenius norm: the start of Muon's Newton-Schulz iteration (Jordan et
// al. 2024). The result has two leading dimensions, as matmul requires.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::unit_norm::x, 2);
  rules::floating(c, in::unit_norm::x);
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  const Value& x = c.in(in::unit_norm::x);
  DType to = c.dtype_attr(x.dtype);
  c.check(is_float(to), "attribute 'dtype' must be a floating-point dtype");
  c.out(to, {1, 1, x.shape[0], x.shape[1]});
}

static Cost cost(const Program& p, const Instr& i) {
  const Value& x = p.at(i.in[in::unit_norm::x]);
  Cost c = traffic_with_flops(p, i, 3 * double(x.numel()));
  c.bytes_read += double(x.bytes());  // once for the norm, once for the quotient
  return c;
}

const OpDef op_unit_norm = {.name = "unit_norm",
                            .inputs = in::unit_norm::names,
                            .outputs = out::unit_norm::names,
                            .help = "x[M,N] -> x / (||x|| + eps) as [1,1,M,N]",
                            .op_class = OpClass::optimizer,
                            .infer = infer,
                            .place = cut<"- -> -">,
                            .cost = cost};

}  // namespace crest
