// Dense layers: y = x w^T + b and the two contractions of its gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

// x[..,K], w[N,K], [b[N]]; returns the shape of y.
static Shape check_linear(const Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, in::linear::x, 1);
  rules::floating(c, in::linear::x);
  rules::rank(c, in::linear::w, 2);
  c.same_dtype(in::linear::w, in::linear::x);
  const Shape &x = c.in(in::linear::x).shape, &w = c.in(in::linear::w).shape;
  c.check(x.back() == w[1], "the last dimension of x is not the last dimension of w");
  if (c.has(in::linear::b)) {
    rules::shape(c, in::linear::b, {w[0]});
    c.same_dtype(in::linear::b, in::linear::x);
  }
  return x.with_back(w[0]);
}

static void infer_linear(Infer& c) {
  Shape y = check_linear(c);
  c.out(c.in(in::linear::x).dtype, y);
}

static void infer_linear_gelu(Infer& c) {
  Shape y = check_linear(c);
  c.out(c.in(in::linear_gelu::x).dtype, y);
  if (rules::flag(c, "keep")) c.out(c.in(in::linear_gelu::x).dtype, y);
}

static void infer_linear_dx(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, in::linear_dx::dy, 1);
  rules::floating(c, in::linear_dx::dy);
  rules::rank(c, in::linear_dx::w, 2);
  c.same_dtype(in::linear_dx::w, in::linear_dx::dy);
  const Shape &dy = c.in(in::linear_dx::dy).shape, &w = c.in(in::linear_dx::w).shape;
  c.check(dy.back() == w[0], "the last dimension of dy is not the first dimension of w");
  c.out(c.in(in::linear_dx::dy).dtype, dy.with_back(w[1]));
}

static void infer_linear_dx_gelu_grad(Infer& c) {
  namespace at = in::linear_dx_gelu_grad;
  rules::inputs(c, 3, 4);
  rules::contiguous(c);
  rules::at_least_rank(c, at::dy, 1);
  rules::floating(c, at::dy);
  rules::rank(c, at::w, 2);
  c.same_dtype(at::w, at::dy);
  c.same_dtype(at::x, at::dy);
  const Value &dy = c.in(at::dy), &w = c.in(at::w);
  c.check(dy.shape.back() == w.shape[0], "the last dimension of dy is not the first dimension of w");
  Shape dx = dy.shape.with_back(w.shape[1]);
  rules::shape(c, at::x, dx);
  c.out(dy.dtype, dx);
  rules::out_sum(c, at::acc, rules::gradient(c, dy.dtype), {w.shape[1]});
  if (rules::flag(c, "keep")) c.out(dy.dtype, dx);
}

static void infer_linear_dw(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, in::linear_dw::dy, 1);
  rules::at_least_rank(c, in::linear_dw::x, 1);
  rules::floating(c, in::linear_dw::dy);
  c.same_dtype(in::linear_dw::x, in::linear_dw::dy);
  const Shape &dy = c.in(in::linear_dw::dy).shape, &x = c.in(in::linear_dw::x).shape;
  c.check(dy.rows() == x.rows(), "dy and x differ in their number of rows");
  rules::out_sum(c, in::linear_dw::acc, rules::gradient(c, c.in(in::linear_dw::dy).dtype), {dy.back(), x.back()});
}

// 2 MNK; a bias adds one operation per output.
static Cost cost_linear(const Program& p, const Instr& i) {
  double y = double(p.at(i.out[out::linear::y]).numel());
  bool bias = i.in.size() > in::linear::b && i.in[in::linear::b] != no_value;
  return traffic_with_flops(p, i, y * (2.0 * double(p.at(i.in[in::linear::w]).shape[1]) + (bias ? 1 : 0)));
}

static Cost cost_linear_gelu(const Program& p, const Instr& i) {
  Cost c = cost_linear(p, i);
  c.flops += 9.0 * double(p.at(i.out[out::linear_gelu::a]).numel());  // as gelu
  return c;
}

static Cost cost_linear_dx(const Program& p, const Instr& i) {
  return traffic_with_flops(
      p, i, 2.0 * double(p.at(i.out[out::linear_dx::dx]).numel()) * double(p.at(i.in[in::linear_dx::w]).shape[0]));
}

static Cost cost_linear_dx_gelu_grad(const Program& p, const Instr& i) {
  double dx = double(p.at(i.out[out::linear_dx_gelu_grad::dx]).numel());
  double n = double(p.at(i.in[in::linear_dx_gelu_grad::w]).shape[0]);
  bool keep = i.out.size() > out::linear_dx_gelu_grad::a;
  return traffic_with_flops(p, i, dx * (2.0 * n + 16 + 1 + (keep ? 9 : 0)));  // as gelu_grad, bias_grad, gelu
}

static Cost cost_linear_dw(const Program& p, const Instr& i) {
  return traffic_with_flops(
      p, i, 2.0 * double(p.at(i.out[out::linear_dw::dw]).numel()) * double(p.at(i.in[in::linear_dw::dy]).shape.rows()));
}

static void grad_linear(Grad& g) {
  ValueId dy = g.dout(out::linear::y), x = g.in(in::linear::x), w = g.in(in::linear::w);
  Attrs dtype;
  dtype.set("dtype", name(g.weight_grad_dtype()));
  // The bias first: next to the instruction that made dy, it can join a fused one.
  if (g.in(in::linear::b) != no_value && g.needs(in::linear::b))
    g.set(in::linear::b, g.builder().emit1("bias_grad", {dy, g.acc(in::linear::b)}, dtype));
  if (g.needs(in::linear::x)) g.add(in::linear::x, g.builder().emit1("linear_dx", {dy, w}));
  if (g.needs(in::linear::w))
    g.set(in::linear::w, g.builder().emit1("linear_dw", {dy, x, g.acc(in::linear::w)}, dtype));
}

const OpDef op_linear = {.name = "linear",
                         .inputs = in::linear::names,
                         .outputs = out::linear::names,
                         .help = "x[..,K], w[N,K], [b[N]] -> y[..,N]: x w^T + b",
                         .op_class = OpClass::contraction,
                         .infer = infer_linear,
                         .cost = cost_linear,
                         .grad = grad_linear,
                         .pitched_out = {out::linear::y},
                         .half_compute = true};

const OpDef op_linear_gelu = {.name = "linear_gelu",
                              .inputs = in::linear_gelu::names,
                              .outputs = out::linear_gelu::names,
                              .help = "x[..,K], w[N,K], [b[N]] -> a[..,N], [h[..,N]]: h = x w^T + b, a = gelu(h)",
                              .op_class = OpClass::contraction,
                              .infer = infer_linear_gelu,
                              .cost = cost_linear_gelu};

const OpDef op_linear_dx = {.name = "linear_dx",
                            .inputs = in::linear_dx::names,
                            .outputs = out::linear_dx::names,
                            .help = "dy[..,N], w[N,K] -> dx[..,K]: dy w",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dx,
                            .cost = cost_linear_dx,
                            .pitched_in = {in::linear_dx::dy}};

const OpDef op_linear_dx_gelu_grad = {
    .name = "linear_dx_gelu_grad",
    .inputs = in::linear_dx_gelu_grad::names,
    .outputs = out::linear_dx_gelu_grad::names,
    .help =
        "dy[..,N], w[N,K], x[..,K], [acc[K]] -> dx[..,K], db[K], [a[..,K]]: dx = (dy w) gelu'(x), db = dx summed "
        "over rows (+ acc), a = gelu(x)",
    .op_class = OpClass::contraction,
    .infer = infer_linear_dx_gelu_grad,
    .cost = cost_linear_dx_gelu_grad,
    .may_overlay = {{out::linear_dx_gelu_grad::dx, in::linear_dx_gelu_grad::x}},
    .accumulators = {{out::linear_dx_gelu_grad::db, in::linear_dx_gelu_grad::acc}}};

const OpDef op_linear_dw = {.name = "linear_dw",
                            .inputs = in::linear_dw::names,
                            .outputs = out::linear_dw::names,
                            .help = "dy[..,N], x[..,K], [acc[N,K]] -> dw[N,K]: dy^T x summed over rows (+ acc)",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dw,
                            .cost = cost_linear_dw,
                            .accumulators = {{out::linear_dw::dw, in::linear_dw::acc}},
                            .pitched_in = {in::linear_dw::dy}};

}  // namespace crest
