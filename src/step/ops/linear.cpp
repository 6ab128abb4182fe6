// Dense layers: y = x w^T + b and the two contractions of its gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

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

static void infer_linear_swiglu(Infer& c) {
  namespace at = in::linear_swiglu;
  rules::inputs(c, 3, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  rules::rank(c, at::w, 2);
  c.same_dtype(at::w, at::x);
  c.same_dtype(at::w_up, at::x);
  const Value &x = c.in(at::x), &w = c.in(at::w);
  c.check(x.shape.back() == w.shape[1], "the last dimension of x is not the last dimension of w");
  rules::shape(c, at::w_up, w.shape);
  const int results = rules::flag(c, "keep") ? 3 : 1;
  for (int i = 0; i < results; ++i) c.out(x.dtype, x.shape.with_back(w.shape[0]));
}

// dy[..,N], w[N,K] at these operands; returns the shape of dy w.
static Shape check_dx(const Infer& c, size_t dy, size_t w) {
  rules::at_least_rank(c, dy, 1);
  rules::floating(c, dy);
  rules::rank(c, w, 2);
  c.same_dtype(w, dy);
  const Shape &rows = c.in(dy).shape, &weight = c.in(w).shape;
  c.check(rows.back() == weight[0], "the last dimension of dy is not the first dimension of w");
  return rows.with_back(weight[1]);
}

static void infer_linear_dx(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  Shape dx = check_dx(c, in::linear_dx::dy, in::linear_dx::w);
  c.out(c.in(in::linear_dx::dy).dtype, dx);
}

static void infer_linear_dx_sum(Infer& c) {
  namespace at = in::linear_dx_sum;
  rules::inputs(c, 4, 4);
  rules::contiguous(c);
  Shape dx = check_dx(c, at::dy, at::w);
  check_dx(c, at::dy_2, at::w_2);
  c.same_dtype(at::dy_2, at::dy);
  rules::shape(c, at::dy_2, c.in(at::dy).shape);
  rules::shape(c, at::w_2, c.in(at::w).shape);
  c.out(c.in(at::dy).dtype, dx);
}

static void infer_linear_dx_gelu_grad(Infer& c) {
  namespace at = in::linear_dx_gelu_grad;
  rules::inputs(c, 3, 4);
  rules::contiguous(c);
  Shape dx = check_dx(c, at::dy, at::w);
  const Value &dy = c.in(at::dy), &w = c.in(at::w);
  c.same_dtype(at::x, at::dy);
  rules::shape(c, at::x, dx);
  c.out(dy.dtype, dx);
  rules::out_sum(c, at::acc, rules::gradient(c, dy.dtype), {w.shape[1]});
  if (rules::flag(c, "keep")) c.out(dy.dtype, dx);
}

static void infer_linear_dx_swiglu_grad(Infer& c) {
  namespace at = in::linear_dx_swiglu_grad;
  rules::inputs(c, 4, 4);
  rules::contiguous(c);
  Shape da = check_dx(c, at::dy, at::w);
  for (size_t i : {at::g, at::u}) {
    c.same_dtype(i, at::dy);
    rules::shape(c, i, da);
  }
  const int results = rules::flag(c, "keep") ? 3 : 2;
  for (int i = 0; i < results; ++i) c.out(c.in(at::dy).dtype, da);
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

// As two linear, silu and mul.
static Cost cost_linear_swiglu(const Program& p, const Instr& i) {
  double a = double(p.at(i.out[out::linear_swiglu::a]).numel());
  return traffic_with_flops(p, i, a * (4.0 * double(p.at(i.in[in::linear_swiglu::w]).shape[1]) + 4 + 1));
}

// As two linear_dx and add.
static Cost cost_linear_dx_sum(const Program& p, const Instr& i) {
  double dx = double(p.at(i.out[out::linear_dx_sum::dx]).numel());
  return traffic_with_flops(p, i, dx * (4.0 * double(p.at(i.in[in::linear_dx_sum::w]).shape[0]) + 1));
}

// As linear_dx, two mul, silu_grad, silu, and a third mul for a.
static Cost cost_linear_dx_swiglu_grad(const Program& p, const Instr& i) {
  double da = double(p.at(i.out[out::linear_dx_swiglu_grad::dg]).numel());
  double n = double(p.at(i.in[in::linear_dx_swiglu_grad::w]).shape[0]);
  bool keep = i.out.size() > out::linear_dx_swiglu_grad::a;
  return traffic_with_flops(p, i, da * (2.0 * n + 2 + 8 + 4 + (keep ? 1 : 0)));
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
  // The bias first: next to the instruction that made dy, the bias gradient can join a fused
  // instruction.
  if (g.in(in::linear::b) != no_value && g.needs(in::linear::b))
    g.set(in::linear::b, g.builder().emit1("bias_grad", {dy, g.acc(in::linear::b)}, dtype));
  if (g.needs(in::linear::x)) g.add(in::linear::x, g.builder().emit1("linear_dx", {dy, w}));
  if (g.needs(in::linear::w))
    g.set(in::linear::w, g.builder().emit1("linear_dw", {dy, x, g.acc(in::linear::w)}, dtype));
}

// A bias would be added once for each part of the sum.
static const char* place_linear(const Program& p, const Instr& i) {
  bool bias = i.in.size() > in::linear::b && i.in[in::linear::b] != no_value;
  return bias ? cut<"..K, NK, N -> ..N; .. N">(p, i) : cut<"..K, NK -> ..N; .. N K+">(p, i);
}

const OpDef op_linear = {.name = "linear",
                         .inputs = in::linear::names,
                         .outputs = out::linear::names,
                         .help = "x[..,K], w[N,K], [b[N]] -> y[..,N]: x w^T + b",
                         .op_class = OpClass::contraction,
                         .infer = infer_linear,
                         .place = place_linear,
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
                              .place = cut<"..K, NK, N -> ..N; .. N">,
                              .cost = cost_linear_gelu};

const OpDef op_linear_swiglu = {
    .name = "linear_swiglu",
    .inputs = in::linear_swiglu::names,
    .outputs = out::linear_swiglu::names,
    .help = "x[..,K], w[N,K], w_up[N,K] -> a[..,N], [g[..,N], u[..,N]]: g = x w^T, u = x w_up^T, a = silu(g) u",
    .op_class = OpClass::contraction,
    .infer = infer_linear_swiglu,
    .place = cut<"..K, NK -> ..N; .. N">,
    .cost = cost_linear_swiglu};

const OpDef op_linear_dx = {.name = "linear_dx",
                            .inputs = in::linear_dx::names,
                            .outputs = out::linear_dx::names,
                            .help = "dy[..,N], w[N,K] -> dx[..,K]: dy w",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dx,
                            .place = cut<"..N, NK -> ..K; .. K N+">,
                            .cost = cost_linear_dx,
                            .pitched_in = {in::linear_dx::dy}};

const OpDef op_linear_dx_sum = {.name = "linear_dx_sum",
                                .inputs = in::linear_dx_sum::names,
                                .outputs = out::linear_dx_sum::names,
                                .help = "dy[..,N], w[N,K], dy_2[..,N], w_2[N,K] -> dx[..,K]: dy w + dy_2 w_2",
                                .op_class = OpClass::contraction,
                                .infer = infer_linear_dx_sum,
                                .place = cut<"..N, NK, ..N, NK -> ..K; .. K N+">,
                                .cost = cost_linear_dx_sum};

const OpDef op_linear_dx_swiglu_grad = {
    .name = "linear_dx_swiglu_grad",
    .inputs = in::linear_dx_swiglu_grad::names,
    .outputs = out::linear_dx_swiglu_grad::names,
    .help =
        "dy[..,N], w[N,K], g[..,K], u[..,K] -> dg[..,K], du[..,K], [a[..,K]]: the gradients of a = silu(g) u with "
        "da = dy w, and a",
    .op_class = OpClass::contraction,
    .infer = infer_linear_dx_swiglu_grad,
    .place = cut<"..N, NK, ..K -> ..K; .. K">,
    .cost = cost_linear_dx_swiglu_grad,
    .may_overlay = {{out::linear_dx_swiglu_grad::dg, in::linear_dx_swiglu_grad::g},
                    {out::linear_dx_swiglu_grad::du, in::linear_dx_swiglu_grad::u}}};

const OpDef op_linear_dx_gelu_grad = {
    .name = "linear_dx_gelu_grad",
    .inputs = in::linear_dx_gelu_grad::names,
    .outputs = out::linear_dx_gelu_grad::names,
    .help =
        "dy[..,N], w[N,K], x[..,K], [acc[K]] -> dx[..,K], db[K], [a[..,K]]: dx = (dy w) gelu'(x), db = dx summed "
        "over rows (+ acc), a = gelu(x)",
    .op_class = OpClass::contraction,
    .infer = infer_linear_dx_gelu_grad,
    .place = cut<"..N, NK, ..K, K -> ..K, K, ..K; ..+ K">,
    .cost = cost_linear_dx_gelu_grad,
    .may_overlay = {{out::linear_dx_gelu_grad::dx, in::linear_dx_gelu_grad::x}},
    .accumulators = {{out::linear_dx_gelu_grad::db, in::linear_dx_gelu_grad::acc}}};

const OpDef op_linear_dw = {.name = "linear_dw",
                            .inputs = in::linear_dw::names,
                            .outputs = out::linear_dw::names,
                            .help = "dy[..,N], x[..,K], [acc[N,K]] -> dw[N,K]: dy^T x summed over rows (+ acc)",
                            .op_class = OpClass::contraction,
                            .infer = infer_linear_dw,
                            .place = cut<"..N, ..K, NK -> NK; ..+ N K">,
                            .cost = cost_linear_dw,
                            .accumulators = {{out::linear_dw::dw, in::linear_dw::acc}},
                            .pitched_in = {in::linear_dw::dy}};

}  // namespace crest
