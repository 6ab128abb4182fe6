// Dense layers: y = x w^T + b and the two contractions of its gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

// x[..,K], w[N,K], [b[N]]; returns the shape of y.
static Shape check_linear(const Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  rules::rank(c, 1, 2);
  c.same_dtype(1, 0);
  const Shape &x = c.in(0).shape, &w = c.in(1).shape;
  c.check(x.back() == w[1], "the last dimension of x is not the last dimension of w");
  if (c.has(2)) {
    rules::shape(c, 2, {w[0]});
    c.same_dtype(2, 0);
  }
  return x.with_back(w[0]);
}

static void infer_linear(Infer& c) {
  Shape y = check_linear(c);
  c.out(c.in(0).dtype, y);
}

static void infer_linear_gelu(Infer& c) {
  Shape y = check_linear(c);
  c.out(c.in(0).dtype, y);
  if (rules::flag(c, "keep")) c.out(c.in(0).dtype, y);
}

static void infer_linear_dx(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  rules::rank(c, 1, 2);
  c.same_dtype(1, 0);
  c.check(c.in(0).shape.back() == c.in(1).shape[0], "the last dimension of dy is not the first dimension of w");
  c.out(c.in(0).dtype, c.in(0).shape.with_back(c.in(1).shape[1]));
}

static void infer_linear_dw(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::at_least_rank(c, 1, 1);
  rules::floating(c, 0);
  c.same_dtype(1, 0);
  const Shape &dy = c.in(0).shape, &x = c.in(1).shape;
  c.check(dy.rows() == x.rows(), "dy and x differ in their number of rows");
  rules::out_sum(c, 2, rules::gradient(c, c.in(0).dtype), {dy.back(), x.back()});
}

// 2 MNK; a bias adds one operation per output.
static Cost cost_linear(const Program& p, const Instr& i) {
  double y = double(p.at(i.out[0]).numel());
  bool bias = i.in.size() > 2 && i.in[2] != no_value;
  return traffic_with_flops(p, i, y * (2.0 * double(p.at(i.in[1]).shape[1]) + (bias ? 1 : 0)));
}

static Cost cost_linear_gelu(const Program& p, const Instr& i) {
  Cost c = cost_linear(p, i);
  c.flops += 9.0 * double(p.at(i.out[0]).numel());  // as gelu
  return c;
}

static Cost cost_linear_dx(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 2.0 * double(p.at(i.out[0]).numel()) * double(p.at(i.in[1]).shape[0]));
}

static Cost cost_linear_dw(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 2.0 * double(p.at(i.out[0]).numel()) * double(p.at(i.in[0]).shape.rows()));
}

static void grad_linear(Grad& g) {
  ValueId dy = g.dout(0), x = g.in(0), w = g.in(1);
  Attrs dtype;
  dtype.set("dtype", name(g.weight_grad_dtype()));
  // The bias first: next to what made dy, it can join a fused instruction.
  if (g.in(2) != no_value && g.needs(2)) g.set(2, g.builder().emit1("bias_grad", {dy, g.acc(2)}, dtype));
  if (g.needs(0)) g.add(0, g.builder().emit1("linear_dx", {dy, w}));
  if (g.needs(1)) g.set(1, g.builder().emit1("linear_dw", {dy, x, g.acc(1)}, dtype));
}

const OpDef op_linear = {.name = "linear",
                         .help = "x[..,K], w[N,K], [b[N]] -> y[..,N]: x w^T + b",
                         .op_class = OpClass::contraction,
                         .infer = infer_linear,
                         .cost = cost_linear,
                         .grad = grad_linear,
                         .half_compute = true};

const OpDef op_linear_gelu = {.name = "linear_gelu",
                              .help = "x[..,K], w[N,K], [b[N]] -> a[..,N], [h[..,N]]: h = x w^T + b, a = gelu(h)",
                              .op_class = OpClass::contraction,
                              .infer = infer_linear_gelu,
                              .cost = cost_linear_gelu};

const OpDef op_linear_dx = {.name = "linear_dx",
                            .help = "dy[..,N], w[N,K] -> dx[..,K]: dy w",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dx,
                            .cost = cost_linear_dx};

const OpDef op_linear_dw = {.name = "linear_dw",
                            .help = "dy[..,N], x[..,K], [acc[N,K]] -> dw[N,K]: dy^T x summed over rows (+ acc)",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dw,
                            .cost = cost_linear_dw,
                            .accumulators = {{0, 2}}};

}  // namespace crest
