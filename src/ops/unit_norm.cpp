// A matrix divided by its Frobenius norm: the start of Muon's Newton-Schulz iteration (Jordan et al. 2024). The result
// has the two leading dimensions that matmul wants.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, 0, 2);
  rules::floating(c, 0);
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  DType to = c.dtype_attr(c.in(0).dtype);
  c.check(is_float(to), "attribute 'dtype' must be a floating-point dtype");
  c.out(to, {1, 1, c.in(0).shape[0], c.in(0).shape[1]});
}

static Cost cost(const Program& p, const Instr& i) {
  Cost c = traffic_with_flops(p, i, 3 * double(p.at(i.in[0]).numel()));
  c.bytes_read += double(p.at(i.in[0]).bytes());  // for the norm, then for the quotient
  return c;
}

const OpDef op_unit_norm = {.name = "unit_norm",
                            .help = "x[M,N] -> x / (||x|| + eps) as [1,1,M,N]",
                            .op_class = OpClass::optimizer,
                            .infer = infer,
                            .cost = cost};

}  // namespace crest
