// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), the residual sum before them,
// with dropout of its second summand, and the gradients of all three.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static bool is_layer(const Infer& c) {
  c.check(c.attrs().has("kind"), "attribute 'kind' is missing");
  const std::string& kind = c.attrs().text("kind");
  c.check(kind == "layer" || kind == "rms", "attribute 'kind' must be layer or rms");
  return kind == "layer";
}

// x as input `x`, [gamma] and [beta] after it; declares y, rstd and mean.
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
  rules::inputs(c, 1, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, in::norm::x, 1);
  rules::floating(c, in::norm::x);
  norm_of(c, in::norm::x);
}

static void infer_add_norm(Infer& c) {
  rules::inputs(c, 2, 5);
  rules::contiguous(c);
  rules::at_least_rank(c, in::add_norm::a, 1);
  rules::floating(c, in::add_norm::a);
  c.same_shape(in::add_norm::b, in::add_norm::a);
  c.same_dtype(in::add_norm::b, in::add_norm::a);
  if (rules::drops(c, in::add_norm::scalars)) rules::at_least_rank(c, in::add_norm::a, 2);  // samples and rows
  c.out_like(in::add_norm::a);
  norm_of(c, in::add_norm::b);  // b has the type of the sum
}

static void infer_norm_grad(Infer& c) {
  rules::inputs(c, 2, 11);
  rules::contiguous(c);
  rules::at_least_rank(c, in::norm_grad::dy, 1);
  rules::floating(c, in::norm_grad::dy);
  c.same_shape(in::norm_grad::x, in::norm_grad::dy);
  c.same_dtype(in::norm_grad::x, in::norm_grad::dy);
  bool layer = is_layer(c), beta = rules::flag(c, "beta"), bias = rules::flag(c, "bias"), keep = rules::flag(c, "keep");
  c.check(layer || !beta, "an rms norm has no beta");
  c.check(beta || !bias, "attribute 'bias' needs attribute 'beta' to be 1");
  const Value& dy = c.in(in::norm_grad::dy);
  Shape columns = {dy.shape.back()}, rows = {dy.shape.rows()};
  DType stat = rules::stat(dy.dtype);
  if (c.has(in::norm_grad::gamma)) {
    rules::shape(c, in::norm_grad::gamma, columns);
    c.same_dtype(in::norm_grad::gamma, in::norm_grad::dy);
  }
  c.check(c.has(in::norm_grad::rstd), "input 'rstd' is required");
  rules::shape(c, in::norm_grad::rstd, rows);
  rules::dtype(c, in::norm_grad::rstd, stat);
  c.check(c.has(in::norm_grad::mean) == layer, layer ? "a layer norm needs the saved mean" : "an rms norm has no mean");
  if (layer) {
    rules::shape(c, in::norm_grad::mean, rows);
    rules::dtype(c, in::norm_grad::mean, stat);
  }
  if (c.has(in::norm_grad::dres)) {
    c.same_shape(in::norm_grad::dres, in::norm_grad::dy);
    c.same_dtype(in::norm_grad::dres, in::norm_grad::dy);
  }
  c.check(beta || !c.has(in::norm_grad::acc_beta), "an accumulator of beta is given but attribute 'beta' is 0");
  c.check(bias || !c.has(in::norm_grad::acc_bias), "an accumulator of the bias is given but attribute 'bias' is 0");
  c.check(keep || !c.has(in::norm_grad::beta), "beta is given but attribute 'keep' is 0");
  if (c.has(in::norm_grad::beta)) {
    c.check(layer, "an rms norm has no beta");
    rules::shape(c, in::norm_grad::beta, columns);
    c.same_dtype(in::norm_grad::beta, in::norm_grad::dy);
  }
  const bool drops = rules::drops(c, in::norm_grad::scalars), apart = rules::flag(c, "apart");
  if (drops) rules::at_least_rank(c, in::norm_grad::dy, 2);  // samples and rows
  c.check(drops || !apart, "attribute 'apart' needs attribute 'p'");
  DType t = rules::gradient(c, dy.dtype);
  c.out_like(in::norm_grad::dy);
  rules::out_sum(c, in::norm_grad::acc_gamma, t, columns);
  if (beta) rules::out_sum(c, in::norm_grad::acc_beta, t, columns);
  if (bias) rules::out_sum(c, in::norm_grad::acc_bias, t, columns);
  if (apart) c.out_like(in::norm_grad::dy);
  if (keep) c.out_like(in::norm_grad::x);
}

// Per element, layer: mean 1, variance 3, scale and shift 4; rms: 2 and 2. Dropout: 2.
static Cost norm_cost(const Program& p, const Instr& i, double extra) {
  double per_element = (i.attrs.text("kind") == "layer" ? 8 : 4) + (i.attrs.has("p") ? 2 : 0) + extra;
  return traffic_with_flops(p, i, per_element * double(p.at(i.out[0]).numel()));
}

static Cost cost_norm(const Program& p, const Instr& i) { return norm_cost(p, i, 0); }
static Cost cost_add_norm(const Program& p, const Instr& i) { return norm_cost(p, i, 1); }
static Cost cost_norm_grad(const Program& p, const Instr& i) {
  bool bias = i.attrs.integer("bias", 0) != 0, keep = i.attrs.integer("keep", 0) != 0;
  return norm_cost(p, i, 6 + (bias ? 1 : 0) + (keep ? 2 : 0));  // y from values computed for dgamma anyway
}

static void grad_norm(Grad& g) {
  const bool layer = g.attrs().text("kind") == "layer", gamma = g.in(in::norm::gamma) != no_value,
             beta = g.in(in::norm::beta) != no_value;
  Attrs attrs;
  attrs.set("kind", g.attrs().text("kind")).set("beta", beta).set("dtype", name(g.weight_grad_dtype()));
  ValueId mean = layer ? g.out(out::norm::mean) : no_value, acc_gamma = gamma ? g.acc(in::norm::gamma) : no_value,
          acc_beta = beta ? g.acc(in::norm::beta) : no_value;
  auto out = g.builder().emit("norm_grad",
                              {g.dout(out::norm::y), g.in(in::norm::x), g.in(in::norm::gamma), g.out(out::norm::rstd),
                               mean, no_value, acc_gamma, acc_beta},
                              attrs);
  if (g.needs(in::norm::x)) g.add(in::norm::x, out[out::norm_grad::dx]);
  if (gamma && g.needs(in::norm::gamma)) g.set(in::norm::gamma, out[out::norm_grad::dgamma]);
  if (beta && g.needs(in::norm::beta)) g.set(in::norm::beta, out[out::norm_grad::dbeta]);
}

static const char* place_grad(const Program& p, const Instr& i) {
  // By the number of columns of sums, and of results like dx behind them.
  const int64_t sums = i.attrs.integer("beta", 0) + i.attrs.integer("bias", 0);
#define CREST_NORM_GRAD "..C, ..C, C, *, *, ..C, C, C, C, C, - -> ..C, C, "
  if (sums == 0) return cut<CREST_NORM_GRAD "..C; ..+">(p, i);
  if (sums == 1) return cut<CREST_NORM_GRAD "C, ..C; ..+">(p, i);
  return cut<CREST_NORM_GRAD "C, C, ..C; ..+">(p, i);
#undef CREST_NORM_GRAD
}

const OpDef op_norm = {
    .name = "norm",
    .inputs = in::norm::names,
    .outputs = out::norm::names,
    .help = "x[..,C], [gamma[C]], [beta[C]] -> y, rstd[rows], [mean[rows]]: layer or rms norm of rows",
    .op_class = OpClass::normalization,
    .infer = infer_norm,
    .place = cut<"..C, C -> ..C, *; ..">,
    .cost = cost_norm,
    .grad = grad_norm,
    .cheap = true,
    .full_precision = true};

const OpDef op_add_norm = {
    .name = "add_norm",
    .inputs = in::add_norm::names,
    .outputs = out::add_norm::names,
    .help = "a, b, [gamma], [beta], [scalars] -> s = a + b, y = norm(s), rstd, [mean]; with scalars b is dropped out",
    .op_class = OpClass::normalization,
    .infer = infer_add_norm,
    .place = cut<"..C, ..C, C, C, - -> ..C, ..C, *; ..">,
    .cost = cost_add_norm,
    .cheap = true,
    .full_precision = true};

const OpDef op_norm_grad = {
    .name = "norm_grad",
    .inputs = in::norm_grad::names,
    .outputs = out::norm_grad::names,
    .help =
        "dy, x, [gamma], rstd, [mean], [dres], [acc_gamma], [acc_beta], [acc_bias], [beta], [scalars] -> dx (+ dres), "
        "dgamma, [dbeta], [dbias], [dropped], [y]; with scalars dx is dropped out, or dropped is that of dx",
    .op_class = OpClass::normalization,
    .infer = infer_norm_grad,
    .place = place_grad,
    .cost = cost_norm_grad,
    .may_overlay = {{out::norm_grad::dx, in::norm_grad::dy}, {out::norm_grad::dx, in::norm_grad::dres}},
    .accumulators = {{out::norm_grad::dgamma, in::norm_grad::acc_gamma},
                     {out::norm_grad::dbeta, in::norm_grad::acc_beta},
                     {out::norm_grad::dbias, in::norm_grad::acc_bias}}};

}  // namespace crest
