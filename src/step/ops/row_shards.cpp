// Row shards: every rank has an equal part of an activation's rows (batch x tokens), in the order
// of the ranks along the axes. A collective is one flat call.
#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

namespace {

// The number of rows on each rank.
int64_t own_rows_of(const Infer& c, int64_t rows) {
  int64_t ranks = rules::integer(c, "ranks", 2);
  c.check(rows % ranks == 0, "the ranks must divide the rows");
  return rows / ranks;
}

void infer_gather(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::gather_rows::x, 2);
  rules::floating(c, in::gather_rows::x);
  const Value& x = c.in(in::gather_rows::x);
  int64_t rows = x.shape[0] * rules::integer(c, "ranks", 2), seq = rules::integer(c, "seq", 1);
  c.check(rows % seq == 0, "attribute 'seq' must divide the rows");
  c.out(x.dtype, {rows / seq, seq, x.shape[1]});
}

void infer_gather_parts(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::gather_parts::x, 2);
  rules::floating(c, in::gather_parts::x);
  const Value& x = c.in(in::gather_parts::x);
  c.out(x.dtype, {rules::integer(c, "ranks", 2), x.shape[0], x.shape[1]});
}

void infer_gather_columns(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::gather_columns::x, 3);
  rules::floating(c, in::gather_columns::x);
  const Value& x = c.in(in::gather_columns::x);
  c.check(x.shape.rows() == 1, "takes one row: the parts of several do not follow one another");
  c.out(x.dtype, x.shape.with_back(x.shape.back() * rules::integer(c, "ranks", 2)));
}

// Inputs: addends of rows, and an optional bias, added once to each row.
void infer_sum(Infer& c) {
  static_assert(size_t(in::scatter_rows::x) == in::sum_rows::x && size_t(in::scatter_rows::b) == in::sum_rows::b);
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::rank(c, in::scatter_rows::x, 3);
  rules::floating(c, in::scatter_rows::x);
  if (!c.has(in::scatter_rows::b)) return;
  c.same_dtype(in::scatter_rows::b, in::scatter_rows::x);
  rules::shape(c, in::scatter_rows::b, {c.in(in::scatter_rows::x).shape.back()});
}

void infer_scatter(Infer& c) {
  infer_sum(c);
  const Value& x = c.in(in::scatter_rows::x);
  c.out(x.dtype, {own_rows_of(c, x.shape.rows()), x.shape.back()});
}

void infer_sum_rows(Infer& c) {
  infer_sum(c);
  c.out_in_place(in::sum_rows::x);
}

void infer_own(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::own_rows::ids, 2);
  rules::dtype(c, in::own_rows::ids, DType::i32);
  c.out(DType::i32, {own_rows_of(c, c.in(in::own_rows::ids).numel())});
}

Cost cost_of_rows(const Program& p, const Instr& i) {
  auto bytes = double(p.at(i.out[0]).bytes());
  return {0, bytes, bytes};
}

Cost cost_scatter(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(p.at(i.in[in::scatter_rows::x]).numel()));
}

Attrs attrs_of(const Grad& g) {
  return Attrs().set("ranks", g.attrs().integer("ranks")).set("axes", g.attrs().text("axes"));
}

void grad_gather(Grad& g) {
  if (g.needs(in::gather_rows::x))
    g.add(in::gather_rows::x, g.builder().emit1("scatter_rows", {g.dout(out::gather_rows::y)}, attrs_of(g)));
}

void grad_scatter(Grad& g) {
  const ValueId dy = g.dout(out::scatter_rows::y), x = g.in(in::scatter_rows::x);
  if (g.in(in::scatter_rows::b) != no_value && g.needs(in::scatter_rows::b))
    g.set(in::scatter_rows::b, g.builder().emit1("bias_grad", {dy, g.acc(in::scatter_rows::b)},
                                                 Attrs().set("dtype", name(g.weight_grad_dtype()))));
  if (g.needs(in::scatter_rows::x))
    g.add(in::scatter_rows::x,
          g.builder().emit1("gather_rows", {dy}, attrs_of(g).set("seq", g.builder().at(x).shape[1])));
}

}  // namespace

const OpDef op_gather_rows = {.name = "gather_rows",
                              .inputs = in::gather_rows::names,
                              .outputs = out::gather_rows::names,
                              .help = "x[rows,C] -> y[B,T,C]: the rows of all ranks",
                              .op_class = OpClass::communication,
                              .infer = infer_gather,
                              .place = cut<"*C -> ..C; ..">,
                              .exchange = Exchange{Placement::shard(0), Placement()},
                              .cost = cost_of_rows,
                              .grad = grad_gather};

const OpDef op_gather_parts = {.name = "gather_parts",
                               .inputs = in::gather_parts::names,
                               .outputs = out::gather_parts::names,
                               .help = "x[rows,C] -> y[ranks,rows,C]: what each rank has",
                               .op_class = OpClass::communication,
                               .infer = infer_gather_parts,
                               .place = cut<"*_ -> R*_; ..">,
                               .exchange = Exchange{Placement::own(), Placement()},
                               .cost = cost_of_rows};

const OpDef op_scatter_rows = {
    .name = "scatter_rows",
    .inputs = in::scatter_rows::names,
    .outputs = out::scatter_rows::names,
    .help = "x[B,T,C], [b[C]] -> y[rows,C]: this rank's rows of the sum over the ranks, + b; x is lost",
    .op_class = OpClass::communication,
    .infer = infer_scatter,
    .place = cut<"..C, C -> *C; ..">,
    .exchange = Exchange{Placement::partial(), Placement::shard(0), true},
    .cost = cost_scatter,
    .grad = grad_scatter};

const OpDef op_gather_columns = {.name = "gather_columns",
                                 .inputs = in::gather_columns::names,
                                 .outputs = out::gather_columns::names,
                                 .help = "x[1,1,C] -> y[1,1,ranks C]: the columns of all ranks",
                                 .op_class = OpClass::communication,
                                 .infer = infer_gather_columns,
                                 .place = cut<"BT_ -> BT_;">,
                                 .exchange = Exchange{Placement::shard(2), Placement()},
                                 .cost = cost_of_rows};

const OpDef op_sum_rows = {.name = "sum_rows",
                           .inputs = in::sum_rows::names,
                           .outputs = out::sum_rows::names,
                           .help = "x[B,T,C], [b[C]] -> y[B,T,C]: the sum over the ranks, + b, in place of x",
                           .op_class = OpClass::communication,
                           .infer = infer_sum_rows,
                           .place = cut<"..C, C -> ..C; ..">,
                           .exchange = Exchange{Placement::partial(), Placement()},
                           .cost = cost_scatter};

const OpDef op_own_rows = {.name = "own_rows",
                           .inputs = in::own_rows::names,
                           .outputs = out::own_rows::names,
                           .help = "ids i32[B,T] -> y[rows]: a copy of this rank's rows",
                           .op_class = OpClass::movement,
                           .infer = infer_own,
                           .place = cut<".. -> *; ..">,
                           .exchange = Exchange{Placement(), Placement::shard(0)},
                           .cost = cost_of_rows};

const OpDef op_own_positions = {.name = "own_positions",
                                .inputs = in::own_positions::names,
                                .outputs = out::own_positions::names,
                                .help = "ids i32[B,T] -> y[rows]: where in its sequence each of this rank's rows is",
                                .op_class = OpClass::movement,
                                .infer = infer_own,
                                .place = cut<".. -> *; ..">,
                                .exchange = Exchange{Placement(), Placement::shard(0)},
                                .cost = cost_of_rows};

}  // namespace crest
