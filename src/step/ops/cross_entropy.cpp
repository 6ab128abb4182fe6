// Cross-entropy of logits against token ids, and the sum of the rows' losses. If ranks share the
// vocabulary (attribute `axes`), each has columns of the logits: loss_stats of these are gathered,
// and cross_entropy combines them in the order of the ranks (Shoeybi et al. 2019, "Megatron-LM").
// With attribute `cap`, cap tanh(x / cap) takes the place of each logit x (Gemma Team 2024, "Gemma
// 2"). The kernels do it, so only the raw logits are in memory.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

// logits[..,Vp], targets i32 with one entry per row (negative: ignored); returns [rows].
static Shape check_loss(const Infer& c) {
  rules::contiguous(c);
  rules::at_least_rank(c, in::cross_entropy::logits, 1);
  rules::floating(c, in::cross_entropy::logits);
  rules::dtype(c, in::cross_entropy::targets, DType::i32);
  const Shape& logits = c.in(in::cross_entropy::logits).shape;
  c.check(c.in(in::cross_entropy::targets).numel() == logits.rows(),
          "targets must have one entry per row of the logits");
  const int64_t vocab = rules::integer(c, "vocab", 1);
  c.check(vocab <= logits.back() || c.attrs().has("axes"), "attribute 'vocab' exceeds the width of the logits");
  c.check(!c.attrs().has("cap") || rules::number(c, "cap") > 0, "attribute 'cap' must be positive");
  return {logits.rows()};
}

static void infer_stats(Infer& c) {
  rules::inputs(c, 2, 2);
  const int64_t rows = check_loss(c)[0];
  c.out(rules::stat(c.in(in::loss_stats::logits).dtype), {rows, 3});
}

static void infer_cross_entropy(Infer& c) {
  rules::inputs(c, 2, 4);
  Shape rows = check_loss(c);
  c.check(c.has(in::cross_entropy::stats) == c.attrs().has("axes"), "'stats' and attribute 'axes' go together");
  if (c.has(in::cross_entropy::stats)) {
    const Value& stats = c.in(in::cross_entropy::stats);
    rules::rank(c, in::cross_entropy::stats, 3);
    rules::shape(c, in::cross_entropy::stats, {stats.shape[0], rows[0], 3});
    rules::dtype(c, in::cross_entropy::stats, rules::stat(c.in(in::cross_entropy::logits).dtype));
  }
  if (c.has(in::cross_entropy::scalars)) rules::scalars(c, in::cross_entropy::scalars);
  if (c.attrs().has("scale")) rules::number(c, "scale");
  DType stat = rules::stat(c.in(in::cross_entropy::logits).dtype);
  c.out(stat, rows);
  c.out(stat, rows);
}

static void infer_grad(Infer& c) {
  rules::inputs(c, 4, 4);
  Shape rows = check_loss(c);
  rules::shape(c, in::cross_entropy_grad::lse, rows);
  rules::dtype(c, in::cross_entropy_grad::lse, rules::stat(c.in(in::cross_entropy_grad::logits).dtype));
  rules::scalars(c, in::cross_entropy_grad::scalars);
  rules::number(c, "scale");
  c.out_like(in::cross_entropy_grad::logits);
}

static void infer_fused(Infer& c) {
  rules::inputs(c, 3, 3);
  Shape rows = check_loss(c);
  rules::scalars(c, in::cross_entropy_fused::scalars);
  rules::number(c, "scale");
  c.out(rules::stat(c.in(in::cross_entropy_fused::logits).dtype), rows);
  c.out_like(in::cross_entropy_fused::logits);
}

static void infer_sum(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::rank(c, in::sum_loss::loss, 1);
  DType t = c.in(in::sum_loss::loss).dtype;
  c.check(t == DType::f32 || t == DType::f64, "losses must be f32");
  rules::number(c, "scale");
  rules::out_sum(c, in::sum_loss::acc, t, {1});
}

// With stats the logits are left alone: that of the targets is among them.
static const char* place_loss(const Program& p, const Instr& i) {
  return i.attrs.has("axes") ? cut<"..V, *_, -, R*_ -> *; .. V@=">(p, i) : cut<"..V, *_, - -> *; ..">(p, i);
}
static Cost cost_combine(const Program& p, const Instr& i) {
  Cost c = traffic_with_flops(p, i, 3.0 * double(p.at(i.in[in::cross_entropy::stats]).numel()));
  c.bytes_read -= double(p.at(i.in[in::cross_entropy::logits]).bytes());
  return c;
}

// Per logit: maximum, difference, exponential, sum. The gradient: difference, exponential, two
// multiplications. A cap: two multiplications and tanh; its slope: three more.
static Cost cost_per_logit(const Program& p, const Instr& i, double flops, double with_cap) {
  const double per_logit = flops + (i.attrs.has("cap") ? with_cap : 0);
  return traffic_with_flops(p, i, per_logit * double(p.at(i.in[in::cross_entropy::logits]).numel()));
}
static Cost cost_forward(const Program& p, const Instr& i) {
  return i.in.size() > in::cross_entropy::stats ? cost_combine(p, i) : cost_per_logit(p, i, 4, 3);
}
static Cost cost_grad(const Program& p, const Instr& i) { return cost_per_logit(p, i, 4, 6); }
static Cost cost_fused(const Program& p, const Instr& i) { return cost_per_logit(p, i, 8, 6); }
static Cost cost_sum(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(p.at(i.in[in::sum_loss::loss]).numel()));
}

// The loss is the root of differentiation: its own gradient is 1, scaled by attribute `scale` (1 /
// tokens of the step), the loss scale and the loss weight in `scalars`. So the incoming gradient is
// not read.
static void grad(Grad& g) {
  if (!g.needs(in::cross_entropy::logits)) return;
  if (g.in(in::cross_entropy::scalars) == no_value || !g.attrs().has("scale"))
    fail_internal("cross_entropy without scalars or attribute 'scale' has no gradient");
  Attrs attrs;
  attrs.set("vocab", g.attrs().integer("vocab")).set("scale", g.attrs().number("scale"));
  if (g.attrs().has("axes")) attrs.set("axes", g.attrs().text("axes"));
  if (g.attrs().has("cap")) attrs.set("cap", g.attrs().number("cap"));
  std::vector<ValueId> in = {g.in(in::cross_entropy::logits), g.in(in::cross_entropy::targets),
                             g.out(out::cross_entropy::lse), g.in(in::cross_entropy::scalars)};
  g.add(in::cross_entropy::logits, g.builder().emit1("cross_entropy_grad", std::move(in), attrs));
}

const OpDef op_loss_stats = {
    .name = "loss_stats",
    .inputs = in::loss_stats::names,
    .outputs = out::loss_stats::names,
    .help = "logits[..,Vp], targets -> [rows,3]: maximum, sum of e^(x - maximum), logit of the target (else 0)",
    .op_class = OpClass::loss,
    .infer = infer_stats,
    .place = cut<"..V, *_ -> *_; .. V@">,
    .cost = cost_forward,
    .pitched_in = {in::loss_stats::logits},
    .full_precision = true};

const OpDef op_cross_entropy = {
    .name = "cross_entropy",
    .inputs = in::cross_entropy::names,
    .outputs = out::cross_entropy::names,
    .help = "logits[..,Vp], targets i32[..], [scalars], [stats] -> loss[rows] (0 where target < 0), lse[rows]",
    .op_class = OpClass::loss,
    .infer = infer_cross_entropy,
    .place = place_loss,
    .cost = cost_forward,
    .grad = grad,
    .pitched_in = {in::cross_entropy::logits},
    .full_precision = true};

const OpDef op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .inputs = in::cross_entropy_grad::names,
    .outputs = out::cross_entropy_grad::names,
    .help =
        "logits, targets, lse, scalars -> dlogits: (softmax - onehot) scale loss_scale loss_weight, 0 where target < 0",
    .op_class = OpClass::loss,
    .infer = infer_grad,
    .place = cut<"..V, *_, *, - -> ..V; .. V@">,
    .cost = cost_grad,
    .may_overlay = {{out::cross_entropy_grad::dlogits, in::cross_entropy_grad::logits}},
    .pitched_in = {in::cross_entropy_grad::logits},
    .pitched_out = {out::cross_entropy_grad::dlogits}};

const OpDef op_cross_entropy_fused = {
    .name = "cross_entropy_fused",
    .inputs = in::cross_entropy_fused::names,
    .outputs = out::cross_entropy_fused::names,
    .help = "logits, targets, scalars -> loss[rows], dlogits: loss and gradient in one pass",
    .op_class = OpClass::loss,
    .infer = infer_fused,
    .place = cut<"..V, *_, - -> *, ..V; ..">,
    .cost = cost_fused,
    .may_overlay = {{out::cross_entropy_fused::dlogits, in::cross_entropy_fused::logits}},
    .pitched_in = {in::cross_entropy_fused::logits},
    .pitched_out = {out::cross_entropy_fused::dlogits},
    .full_precision = true};

const OpDef op_sum_loss = {.name = "sum_loss",
                           .inputs = in::sum_loss::names,
                           .outputs = out::sum_loss::names,
                           .help = "loss f32[rows], [acc f32[1]] -> f32[1]: sum(rows) scale (+ acc)",
                           .op_class = OpClass::loss,
                           .infer = infer_sum,
                           .place = cut<"*, 1 -> 1; ..+">,
                           .cost = cost_sum,
                           .accumulators = {{out::sum_loss::sum, in::sum_loss::acc}}};

}  // namespace crest
