// Adafactor (Shazeer & Stern 2018, algorithm 4) for a matrix: the second moment as means over rows
// and columns, and the update clipped to a root mean square of `clip`. Decoupled weight decay; the
// learning rate is the schedule's. With `momentum`, `master` is the first moment instead of the
// weights: a mean of the clipped updates over time.
#include "ops/index.h"
#include "ops/update.h"
#include "program/place.h"

namespace crest {

// Inputs `row` and `col` hold one number per row and per column of matrix g.
static void statistics(Infer& c, size_t g, size_t row) {
  rules::contiguous(c);
  rules::scalars(c, in::factored_moments::scalars);
  rules::rank(c, g, 2);
  rules::floating(c, g);
  for (size_t i : {row, row + 1}) {
    c.check(c.in(i).dtype == DType::f32 || c.in(i).dtype == DType::f64, "statistics must be f32");
    rules::shape(c, i, {c.in(g).shape[int(i - row)]});
  }
}

static void infer_moments(Infer& c) {
  rules::inputs(c, 4, 4);
  statistics(c, in::factored_moments::g, in::factored_moments::row);
  c.check(rules::number(c, "decay_rate") > 0, "attribute 'decay_rate' must be positive");
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  c.out_in_place(in::factored_moments::row);
  c.out_in_place(in::factored_moments::col);
}

static void infer_update(Infer& c) {
  rules::inputs(c, 5, 6);
  statistics(c, in::factored_update::g, in::factored_update::row);
  DType t = c.in(in::factored_update::master).dtype;
  c.check(t == DType::f32 || t == DType::f64, "master weights must be f32");
  c.same_shape(in::factored_update::master, in::factored_update::g);
  if (c.has(in::factored_update::w)) {
    rules::floating(c, in::factored_update::w);
    c.same_shape(in::factored_update::w, in::factored_update::g);
  }
  c.check(rules::number(c, "clip") > 0, "attribute 'clip' must be positive");
  rules::rates(c);
  double momentum = c.attrs().number("momentum", 0);
  c.check(momentum >= 0 && momentum < 1, "attribute 'momentum' must be in [0, 1)");
  c.check(momentum == 0 || !c.has(in::factored_update::w), "a moment has no copy");
  c.out_in_place(in::factored_update::master);
  if (c.has(in::factored_update::w)) c.out_in_place(in::factored_update::w);
}

static Cost cost_moments(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 4 * double(p.at(i.in[in::factored_moments::g]).numel()));
}

// The gradient is read twice: for the size of the update, then for the update.
static Cost cost_update(const Program& p, const Instr& i) {
  const Value& g = p.at(i.in[in::factored_update::g]);
  Cost c = traffic_with_flops(p, i, 14 * double(g.numel()));
  c.bytes_read += double(g.bytes());
  return c;
}

const OpDef op_factored_moments = {.name = "factored_moments",
                                   .inputs = in::factored_moments::names,
                                   .outputs = out::factored_moments::names,
                                   .help = "scalars, g[M,N], row[M], col[N] -> row, col: means of g^2 over time",
                                   .op_class = OpClass::optimizer,
                                   .infer = infer_moments,
                                   .place = cut<"- -> -">,
                                   .cost = cost_moments};

const OpDef op_factored_update = {
    .name = "factored_update",
    .inputs = in::factored_update::names,
    .outputs = out::factored_update::names,
    .help = "scalars, master[M,N], g, row, col, [w] -> master, [w]: one step, skipped when found_inf",
    .op_class = OpClass::optimizer,
    .infer = infer_update,
    .place = cut<"- -> -">,
    .cost = cost_update};

}  // namespace crest
