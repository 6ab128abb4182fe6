// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), the residual sum before them, and their gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static bool is_layer(const Infer& c) {
  c.check(c.attrs().has("kind"), "attribute 'kind' is missing");
  const std::string& kind = c.attrs().word("kind");
  c.check(kind == "layer" || kind == "rms", "attribute 'kind' must be layer or rms");
  return kind == "layer";
}

// x as input `x`, gamma and [beta] after it; declares y, rstd and mean.
static void norm_of(Infer& c, size_t x) {
  const Value& v = c.in(x);
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  bool layer = is_layer(c);
  for (size_t i = x + 1; i < x + 3; ++i)
    if (c.has(i)) {
      rules::shape(c, i, {v.shape.back()});
      c.same_dtype(i, x);
    }
  c.check(layer || !c.has(x + 2), "an rms norm has no beta");
  DType stat = rules::stat(v.dtype);
  Shape rows = {v.shape.rows()};
  c.out(v.dtype, v.shape);
  c.out(stat, rows);
  if (layer) c.out(stat, rows);
}

static void infer_norm(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  norm_of(c, 0);
}

static void infer_add_norm(Infer& c) {
  rules::inputs(c, 3, 4);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  c.same_shape(1, 0);
  c.same_dtype(1, 0);
  c.out_like(0);
  norm_of(c, 1);  // b has the type of the sum
}

static void infer_norm_grad(Infer& c) {
  rules::inputs(c, 4, 8);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  c.same_shape(1, 0);
  c.same_dtype(1, 0);
  bool layer = is_layer(c), beta = rules::flag(c, "beta");
  c.check(layer || !beta, "an rms norm has no beta");
  const Value& dy = c.in(0);
  Shape columns = {dy.shape.back()}, rows = {dy.shape.rows()};
  DType stat = rules::stat(dy.dtype);
  rules::shape(c, 2, columns);
  c.same_dtype(2, 0);
  rules::shape(c, 3, rows);
  rules::dtype(c, 3, stat);
  c.check(c.has(4) == layer, layer ? "a layer norm needs the saved mean" : "an rms norm has no mean");
  if (layer) {
    rules::shape(c, 4, rows);
    rules::dtype(c, 4, stat);
  }
  if (c.has(5)) {
    c.same_shape(5, 0);
    c.same_dtype(5, 0);
  }
  c.check(beta || !c.has(7), "an accumulator of beta is given but attribute 'beta' is 0");
  DType t = rules::gradient(c, dy.dtype);
  c.out_like(0);
  rules::out_sum(c, 6, t, columns);
  if (beta) rules::out_sum(c, 7, t, columns);
}

// Per element, layer: mean 1, variance 3, scale and shift 4; rms: 2 and 2.
static Cost norm_cost(const Program& p, const Instr& i, double extra) {
  double per_element = (i.attrs.word("kind") == "layer" ? 8 : 4) + extra;
  return traffic_with_flops(p, i, per_element * double(p.at(i.out[0]).numel()));
}

static Cost cost_norm(const Program& p, const Instr& i) { return norm_cost(p, i, 0); }
static Cost cost_add_norm(const Program& p, const Instr& i) { return norm_cost(p, i, 1); }
static Cost cost_norm_grad(const Program& p, const Instr& i) { return norm_cost(p, i, 6); }

static void grad_norm(Grad& g) {
  bool layer = g.attrs().word("kind") == "layer", beta = g.in(2) != no_value;
  Attrs attrs;
  attrs.set("kind", g.attrs().word("kind")).set("beta", beta).set("dtype", name(g.weight_grad_dtype()));
  ValueId mean = layer ? g.out(2) : no_value, acc_beta = beta ? g.acc(2) : no_value;
  auto out =
      g.builder().emit("norm_grad", {g.dout(0), g.in(0), g.in(1), g.out(1), mean, no_value, g.acc(1), acc_beta}, attrs);
  if (g.needs(0)) g.add(0, out[0]);
  if (g.needs(1)) g.set(1, out[1]);
  if (beta && g.needs(2)) g.set(2, out[2]);
}

const OpDef op_norm = {.name = "norm",
                       .help = "x[..,C], gamma[C], [beta[C]] -> y, rstd[rows], [mean[rows]]: layer or rms norm of rows",
                       .op_class = OpClass::normalisation,
                       .infer = infer_norm,
                       .cost = cost_norm,
                       .grad = grad_norm,
                       .cheap = true,
                       .full_precision = true};

const OpDef op_add_norm = {.name = "add_norm",
                           .help = "a, b, gamma, [beta] -> s = a + b, y = norm(s), rstd, [mean]",
                           .op_class = OpClass::normalisation,
                           .infer = infer_add_norm,
                           .cost = cost_add_norm,
                           .cheap = true,
                           .full_precision = true};

const OpDef op_norm_grad = {
    .name = "norm_grad",
    .help = "dy, x, gamma, rstd, [mean], [dres], [acc_gamma], [acc_beta] -> dx (+ dres), dgamma, [dbeta]",
    .op_class = OpClass::normalisation,
    .infer = infer_norm_grad,
    .cost = cost_norm_grad,
    .may_overlay = {{0, 0}, {0, 5}},
    .accumulators = {{1, 6}, {2, 7}}};

}  // namespace crest
