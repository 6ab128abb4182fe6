// Rows of a table by token id, their gradient, and the last valid row of a sequence.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer_embedding(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::rank(c, 0, 2);
  rules::dtype(c, 0, DType::i32);
  rules::rank(c, 1, 2);
  rules::floating(c, 1);
  DType t = c.dtype_attr(c.in(1).dtype);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  const Shape& ids = c.in(0).shape;
  c.out(t, {ids[0], ids[1], c.in(1).shape[1]});
}

static void infer_embedding_grad(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::rank(c, 0, 2);
  rules::dtype(c, 0, DType::i32);
  rules::rank(c, 1, 3);
  rules::floating(c, 1);
  const Shape &ids = c.in(0).shape, &dy = c.in(1).shape;
  c.check(dy[0] == ids[0] && dy[1] == ids[1], "dy and ids differ in batch or sequence");
  rules::out_sum(c, 2, rules::gradient(c, c.in(1).dtype), {rules::integer(c, "rows", 1), dy[2]});
}

static void infer_take_row(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::rank(c, 0, 3);
  rules::scalars(c, 1);
  const Shape& x = c.in(0).shape;
  c.out(c.in(0).dtype, {x[0], 1, x[2]});
}

// Only the rows that are looked up are read.
static Cost cost_embedding(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[0]), &table = p.at(i.in[1]), &y = p.at(i.out[0]);
  Cost c;
  c.bytes_read = double(ids.bytes()) + double(y.numel()) * double(size_of(table.dtype));
  c.bytes_written = double(y.bytes());
  return c;
}

// Fresh: the whole table is written. Accumulating: only the rows of the ids are read and written.
static Cost cost_embedding_grad(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[0]), &dy = p.at(i.in[1]), &table = p.at(i.out[0]);
  bool accumulates = i.in.size() > 2 && i.in[2] != no_value;
  double touched = double(dy.numel()) * double(size_of(table.dtype));
  Cost c;
  c.flops = double(dy.numel());
  c.bytes_read = double(ids.bytes()) + double(dy.bytes()) + (accumulates ? touched : 0);
  c.bytes_written = accumulates ? touched : double(table.bytes());
  return c;
}

static Cost cost_take_row(const Program& p, const Instr& i) {
  Cost c;
  c.bytes_read = c.bytes_written = double(p.at(i.out[0]).bytes());
  return c;
}

static void grad(Grad& g) {
  if (!g.needs(1)) return;
  Attrs attrs;
  attrs.set("rows", g.builder().at(g.in(1)).shape[0]).set("dtype", name(g.weight_grad_dtype()));
  g.set(1, g.builder().emit1("embedding_grad", {g.in(0), g.dout(0), g.acc(1)}, attrs));
}

const OpDef op_embedding = {.name = "embedding",
                            .help = "ids i32[B,T], table[V,C] -> [B,T,C]: row lookup",
                            .op_class = OpClass::embedding,
                            .infer = infer_embedding,
                            .cost = cost_embedding,
                            .grad = grad};

const OpDef op_embedding_grad = {.name = "embedding_grad",
                                 .help = "ids, dy[B,T,C], [acc[V,C]] -> [V,C]: deterministic scatter-add (+ acc)",
                                 .op_class = OpClass::embedding,
                                 .infer = infer_embedding_grad,
                                 .cost = cost_embedding_grad,
                                 .accumulators = {{0, 2}}};

const OpDef op_take_row = {.name = "take_row",
                           .help = "x[B,T,C], scalars -> [B,1,C]: the row of the last valid token",
                           .op_class = OpClass::movement,
                           .infer = infer_take_row,
                           .cost = cost_take_row};

}  // namespace crest
