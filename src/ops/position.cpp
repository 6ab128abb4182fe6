// Learned position embedding.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer_add(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::rank(c, 0, 3);
  rules::floating(c, 0);
  rules::rank(c, 1, 2);
  c.same_dtype(1, 0);
  const Shape &x = c.in(0).shape, &table = c.in(1).shape;
  c.check(x[2] == table[1], "x and the table differ in width");
  c.check(x[1] <= table[0], "the sequence is longer than the position table");
  if (c.has(2)) rules::scalars(c, 2);
  c.out_like(0);
}

static void infer_grad(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::rank(c, 0, 3);
  rules::floating(c, 0);
  const Shape& dy = c.in(0).shape;
  int64_t rows = rules::integer(c, "rows", 1);
  c.check(dy[1] <= rows, "the sequence is longer than the position table");
  rules::out_sum(c, 1, rules::gradient(c, c.in(0).dtype), {rows, dy[2]});
}

// T rows of the table are read, not all of it.
static Cost cost_add(const Program& p, const Instr& i) {
  const Value& x = p.at(i.in[0]);
  Cost c;
  c.flops = double(x.numel());
  c.bytes_read = double(x.bytes()) * (1 + 1 / double(x.shape[0]));
  c.bytes_written = double(x.bytes());
  return c;
}

// Fresh: the whole table is written. Accumulating: only the first T rows are read and written.
static Cost cost_grad(const Program& p, const Instr& i) {
  const Value &dy = p.at(i.in[0]), &table = p.at(i.out[0]);
  bool accumulates = i.in.size() > 1 && i.in[1] != no_value;
  double touched = double(dy.numel()) / double(dy.shape[0]) * double(size_of(table.dtype));
  Cost c;
  c.flops = double(dy.numel());
  c.bytes_read = double(dy.bytes()) + (accumulates ? touched : 0);
  c.bytes_written = accumulates ? touched : double(table.bytes());
  return c;
}

static void grad(Grad& g) {
  if (g.in(2) != no_value) fail_internal("add_position at a decoding position has no gradient rule");
  if (g.needs(0)) g.add(0, g.dout(0));
  if (!g.needs(1)) return;
  Attrs attrs;
  attrs.set("rows", g.builder().at(g.in(1)).shape[0]).set("dtype", name(g.weight_grad_dtype()));
  g.set(1, g.builder().emit1("position_grad", {g.dout(0), g.acc(1)}, attrs));
}

const OpDef op_add_position = {.name = "add_position",
                               .help = "x[B,T,C], table[P,C], [scalars] -> x + table[t]",
                               .op_class = OpClass::embedding,
                               .infer = infer_add,
                               .cost = cost_add,
                               .grad = grad,
                               .cheap = true};

const OpDef op_position_grad = {.name = "position_grad",
                                .help = "dy[B,T,C], [acc[P,C]] -> [P,C]: sum over the batch (+ acc)",
                                .op_class = OpClass::embedding,
                                .infer = infer_grad,
                                .cost = cost_grad,
                                .accumulators = {{0, 1}}};

}  // namespace crest
