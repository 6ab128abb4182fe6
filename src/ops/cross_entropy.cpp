// Cross-entropy of logits against token ids, and the sum of the rows' losses.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

// logits[..,Vp], targets i32 with one entry a row (negative: ignored); returns [rows].
static Shape check_loss(const Infer& c) {
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  rules::dtype(c, 1, DType::i32);
  const Shape& logits = c.in(0).shape;
  c.check(c.in(1).numel() == logits.rows(), "targets must have one entry a row of the logits");
  c.check(rules::integer(c, "vocab", 1) <= logits.back(), "attribute 'vocab' exceeds the width of the logits");
  return {logits.rows()};
}

static void infer_cross_entropy(Infer& c) {
  rules::inputs(c, 2, 3);
  Shape rows = check_loss(c);
  if (c.has(2)) rules::scalars(c, 2);
  if (c.attrs().has("scale")) rules::number(c, "scale");
  DType stat = rules::stat(c.in(0).dtype);
  c.out(stat, rows);
  c.out(stat, rows);
}

static void infer_grad(Infer& c) {
  rules::inputs(c, 4, 4);
  Shape rows = check_loss(c);
  rules::shape(c, 2, rows);
  rules::dtype(c, 2, rules::stat(c.in(0).dtype));
  rules::scalars(c, 3);
  rules::number(c, "scale");
  c.out_like(0);
}

static void infer_fused(Infer& c) {
  rules::inputs(c, 3, 3);
  Shape rows = check_loss(c);
  rules::scalars(c, 2);
  rules::number(c, "scale");
  c.out(rules::stat(c.in(0).dtype), rows);
  c.out_like(0);
}

static void infer_sum(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::rank(c, 0, 1);
  c.check(c.in(0).dtype == DType::f32 || c.in(0).dtype == DType::f64, "losses must be f32");
  rules::number(c, "scale");
  rules::out_sum(c, 1, c.in(0).dtype, {1});
}

// Per logit: maximum, difference, exponential, sum; the gradient: difference, exponential, two products.
static Cost cost_forward(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 4.0 * double(p.at(i.in[0]).numel()));
}
static Cost cost_fused(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 8.0 * double(p.at(i.in[0]).numel()));
}
static Cost cost_sum(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(p.at(i.in[0]).numel()));
}

// The loss is the root of differentiation: its own gradient is 1, scaled by attribute `scale` (1 / tokens of the step)
// with the loss scale and the loss weight in `scalars`, so the incoming gradient is not read.
static void grad(Grad& g) {
  if (!g.needs(0)) return;
  if (g.in(2) == no_value || !g.attrs().has("scale"))
    fail_internal("cross_entropy without scalars or attribute 'scale' has no gradient");
  Attrs attrs;
  attrs.set("vocab", g.attrs().integer("vocab")).set("scale", g.attrs().number("scale"));
  g.add(0, g.builder().emit1("cross_entropy_grad", {g.in(0), g.in(1), g.out(1), g.in(2)}, attrs));
}

const OpDef op_cross_entropy = {
    .name = "cross_entropy",
    .help = "logits[..,Vp], targets i32[..], [scalars] -> loss[rows] (0 where target < 0), lse[rows]",
    .op_class = OpClass::loss,
    .infer = infer_cross_entropy,
    .cost = cost_forward,
    .grad = grad,
    .full_precision = true};

const OpDef op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .help =
        "logits, targets, lse, scalars -> dlogits: (softmax - onehot) scale loss_scale loss_weight, 0 where target < 0",
    .op_class = OpClass::loss,
    .infer = infer_grad,
    .cost = elementwise_cost<4>,
    .may_overlay = {{0, 0}}};

const OpDef op_cross_entropy_fused = {
    .name = "cross_entropy_fused",
    .help = "logits, targets, scalars -> loss[rows], dlogits: loss and gradient in one pass",
    .op_class = OpClass::loss,
    .infer = infer_fused,
    .cost = cost_fused,
    .may_overlay = {{1, 0}},
    .full_precision = true};

const OpDef op_sum_loss = {.name = "sum_loss",
                           .help = "loss f32[rows], [acc f32[1]] -> f32[1]: sum(rows) scale (+ acc)",
                           .op_class = OpClass::loss,
                           .infer = infer_sum,
                           .cost = cost_sum,
                           .accumulators = {{0, 1}}};

}  // namespace crest
