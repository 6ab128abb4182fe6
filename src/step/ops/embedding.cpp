// Rows of a table by token id, their gradient, and the last valid row of a sequence.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer_embedding(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, in::embedding::ids, 1);
  rules::dtype(c, in::embedding::ids, DType::i32);
  rules::rank(c, in::embedding::table, 2);
  rules::floating(c, in::embedding::table);
  rules::drops(c, in::embedding::scalars);
  DType t = c.dtype_attr(c.in(in::embedding::table).dtype);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  Shape y = c.in(in::embedding::ids).shape;
  y.push_back(c.in(in::embedding::table).shape[1]);
  c.out(t, y);
}

static void infer_embedding_grad(Infer& c) {
  rules::inputs(c, 2, 3);
  rules::contiguous(c);
  rules::at_least_rank(c, in::embedding_grad::ids, 1);
  rules::dtype(c, in::embedding_grad::ids, DType::i32);
  rules::floating(c, in::embedding_grad::dy);
  rules::at_least_rank(c, in::embedding_grad::dy, 2);
  const Shape &ids = c.in(in::embedding_grad::ids).shape, &dy = c.in(in::embedding_grad::dy).shape;
  Shape rows = ids;
  rows.push_back(dy.back());
  c.check(dy == rows, "dy and ids differ in their rows");
  rules::out_sum(c, in::embedding_grad::acc, rules::gradient(c, c.in(in::embedding_grad::dy).dtype),
                 {rules::integer(c, "rows", 1), dy.back()});
}

static void infer_take_row(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::rank(c, in::take_row::x, 3);
  rules::scalars(c, in::take_row::scalars);
  const Shape& x = c.in(in::take_row::x).shape;
  c.out(c.in(in::take_row::x).dtype, {x[0], 1, x[2]});
}

// Only the rows of the ids are read.
static Cost cost_embedding(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[in::embedding::ids]), &table = p.at(i.in[in::embedding::table]),
              &y = p.at(i.out[out::embedding::y]);
  Cost c;
  if (i.attrs.has("p")) c.flops = 2 * double(y.numel());
  c.bytes_read = double(ids.bytes()) + double(y.numel()) * double(size_of(table.dtype));
  c.bytes_written = double(y.bytes());
  return c;
}

// Without an accumulator the whole table is written. With one, only the rows of the ids are read
// and written.
static Cost cost_embedding_grad(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[in::embedding_grad::ids]), &dy = p.at(i.in[in::embedding_grad::dy]),
              &table = p.at(i.out[out::embedding_grad::dtable]);
  bool accumulates = i.in.size() > in::embedding_grad::acc && i.in[in::embedding_grad::acc] != no_value;
  double touched = double(dy.numel()) * double(size_of(table.dtype));
  Cost c;
  c.flops = double(dy.numel());
  c.bytes_read = double(ids.bytes()) + double(dy.bytes()) + (accumulates ? touched : 0);
  c.bytes_written = accumulates ? touched : double(table.bytes());
  return c;
}

static Cost cost_take_row(const Program& p, const Instr& i) {
  Cost c;
  c.bytes_read = c.bytes_written = double(p.at(i.out[out::take_row::y]).bytes());
  return c;
}

static void grad(Grad& g) {
  if (g.in(in::embedding::scalars) != no_value) fail_internal("embedding with dropout has no gradient rule");
  if (!g.needs(in::embedding::table)) return;
  Attrs attrs;
  attrs.set("rows", g.builder().at(g.in(in::embedding::table)).shape[0]).set("dtype", name(g.weight_grad_dtype()));
  if (g.attrs().has("axes")) attrs.set("axes", g.attrs().text("axes"));
  g.set(in::embedding::table,
        g.builder().emit1("embedding_grad",
                          {g.in(in::embedding::ids), g.dout(out::embedding::y), g.acc(in::embedding::table)}, attrs));
}

// Dropout counts the elements of a sample.
static const char* place(const Program& p, const Instr& i) {
  return i.attrs.has("p") ? cut<"*_, VC, - -> *_; ..">(p, i) : cut<".., VC, - -> ..C; .. C V@+">(p, i);
}

const OpDef op_embedding = {
    .name = "embedding",
    .inputs = in::embedding::names,
    .outputs = out::embedding::names,
    .help = "ids i32[..], table[V,C], [scalars] -> [..,C]: row lookup, dropped out with scalars",
    .op_class = OpClass::embedding,
    .infer = infer_embedding,
    .place = place,
    .cost = cost_embedding,
    .grad = grad};

const OpDef op_embedding_grad = {.name = "embedding_grad",
                                 .inputs = in::embedding_grad::names,
                                 .outputs = out::embedding_grad::names,
                                 .help = "ids, dy[..,C], [acc[V,C]] -> [V,C]: deterministic scatter-add (+ acc)",
                                 .op_class = OpClass::embedding,
                                 .infer = infer_embedding_grad,
                                 .place = cut<".., ..C, VC -> VC; ..+ C V@">,
                                 .cost = cost_embedding_grad,
                                 .accumulators = {{out::embedding_grad::dtable, in::embedding_grad::acc}}};

const OpDef op_take_row = {.name = "take_row",
                           .inputs = in::take_row::names,
                           .outputs = out::take_row::names,
                           .help = "x[B,T,C], scalars -> [B,1,C]: the row of the last valid token",
                           .op_class = OpClass::movement,
                           .infer = infer_take_row,
                           .place = cut<"BTC, - -> B1C; B C">,
                           .cost = cost_take_row};

}  // namespace crest
