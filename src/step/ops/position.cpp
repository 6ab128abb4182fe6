// Learned position embeddings. The position of a token is its place in its row, plus the position
// of decoding, or a place given for each token.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static bool has(const Instr& i, size_t in) { return i.in.size() > in && i.in[in] != no_value; }
static bool of_each_token(const Program& p, const Instr& i) {
  return has(i, in::add_position::position) && p.at(i.in[in::add_position::position]).dtype == DType::i32;
}

static void infer_add(Infer& c) {
  rules::inputs(c, 2, 4);
  rules::contiguous(c);
  rules::rank(c, in::add_position::x, 3);
  rules::floating(c, in::add_position::x);
  rules::rank(c, in::add_position::table, 2);
  c.same_dtype(in::add_position::table, in::add_position::x);
  const Shape &x = c.in(in::add_position::x).shape, &table = c.in(in::add_position::table).shape;
  c.check(x[2] == table[1], "x and the table differ in width");
  c.check(x[1] <= table[0], "the sequence is longer than the position table");
  if (c.has(in::add_position::position)) {
    if (c.in(in::add_position::position).dtype == DType::i32)
      rules::positions(c, in::add_position::position, x);
    else
      rules::scalars(c, in::add_position::position);
  }
  rules::drops(c, in::add_position::scalars);
  c.out_like(in::add_position::x);
}

static void infer_grad(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::rank(c, in::position_grad::dy, 3);
  rules::floating(c, in::position_grad::dy);
  const Shape& dy = c.in(in::position_grad::dy).shape;
  int64_t rows = rules::integer(c, "rows", 1);
  c.check(dy[1] <= rows, "the sequence is longer than the position table");
  rules::out_sum(c, in::position_grad::acc, rules::gradient(c, c.in(in::position_grad::dy).dtype), {rows, dy[2]});
}

// Only T rows of the table are read, or one for each token.
static Cost cost_add(const Program& p, const Instr& i) {
  const Value& x = p.at(i.in[in::add_position::x]);
  Cost c;
  c.flops = double(x.numel()) * (i.attrs.has("p") ? 3 : 1);
  c.bytes_read = double(x.bytes()) * (1 + 1 / double(x.shape[0]));
  if (of_each_token(p, i))
    c.bytes_read = 2 * double(x.bytes()) + double(p.at(i.in[in::add_position::position]).bytes());
  c.bytes_written = double(x.bytes());
  return c;
}

// Without an accumulator the whole table is written. With one, only the first T rows are read and
// written.
static Cost cost_grad(const Program& p, const Instr& i) {
  const Value &dy = p.at(i.in[in::position_grad::dy]), &table = p.at(i.out[out::position_grad::dtable]);
  bool accumulates = i.in.size() > in::position_grad::acc && i.in[in::position_grad::acc] != no_value;
  double touched = double(dy.numel()) / double(dy.shape[0]) * double(size_of(table.dtype));
  Cost c;
  c.flops = double(dy.numel());
  c.bytes_read = double(dy.bytes()) + (accumulates ? touched : 0);
  c.bytes_written = accumulates ? touched : double(table.bytes());
  return c;
}

static void grad(Grad& g) {
  const bool tokens = of_each_token(g.builder().program(), g.instr());
  if (g.in(in::add_position::position) != no_value && !tokens)
    fail_internal("add_position at a decoding position has no gradient rule");
  if (g.in(in::add_position::scalars) != no_value) fail_internal("add_position with dropout has no gradient rule");
  if (g.needs(in::add_position::x)) g.add(in::add_position::x, g.dout(out::add_position::y));
  if (!g.needs(in::add_position::table)) return;
  Attrs attrs;
  attrs.set("rows", g.builder().at(g.in(in::add_position::table)).shape[0]).set("dtype", name(g.weight_grad_dtype()));
  const ValueId dy = g.dout(out::add_position::y), acc = g.acc(in::add_position::table);
  g.set(in::add_position::table,
        tokens ? g.builder().emit1("embedding_grad", {g.in(in::add_position::position), dy, acc}, attrs)
               : g.builder().emit1("position_grad", {dy, acc}, attrs));
}

// Without a position for each token, its place in the row counts. Dropout also needs its place in
// the sample.
static const char* place(const Program& p, const Instr& i) {
  if (i.attrs.has("p"))
    return of_each_token(p, i) ? cut<"BTC, PC, BT, - -> BTC; B T%">(p, i) : cut<"BTC, PC, - -> BTC; B">(p, i);
  return of_each_token(p, i) ? cut<"BTC, PC, BT -> BTC; B T C">(p, i) : cut<"BTC, PC, - -> BTC; B C">(p, i);
}

const OpDef op_add_position = {
    .name = "add_position",
    .inputs = in::add_position::names,
    .outputs = out::add_position::names,
    .help = "x[B,T,C], table[P,C], [position], [scalars] -> x + table[t], dropped out with scalars",
    .op_class = OpClass::embedding,
    .infer = infer_add,
    .place = place,
    .cost = cost_add,
    .grad = grad,
    .cheap = true};

const OpDef op_position_grad = {.name = "position_grad",
                                .inputs = in::position_grad::names,
                                .outputs = out::position_grad::names,
                                .help = "dy[B,T,C], [acc[P,C]] -> [P,C]: sum over the batch (+ acc)",
                                .op_class = OpClass::embedding,
                                .infer = infer_grad,
                                .place = cut<"BTC, PC -> PC; B+ C">,
                                .cost = cost_grad,
                                .accumulators = {{out::position_grad::dtable, in::position_grad::acc}}};

}  // namespace crest
