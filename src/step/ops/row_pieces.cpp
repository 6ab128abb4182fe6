// Pieces of rows: products of some rows run while other rows travel between the ranks. Along the
// axis tensor, piece k of a value has the rows of the rank k places further (Layout::pieces), so
// every rank has its own rows in piece 0.
#include <algorithm>

#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

namespace {

// x[rows,C], and attribute `piece`.
void infer_piece(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, 0, 2);
  rules::floating(c, 0);
  c.check(rules::integer(c, "piece", 1) < rules::integer(c, "ranks", 2), "there are as many pieces as ranks");
  c.out(c.in(0).dtype, c.in(0).shape);
}

void infer_own(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::own_piece::x, 2);
  const Value& x = c.in(in::own_piece::x);
  c.out_view(in::own_piece::x, 0, x.shape, x.layout.strides);
}

void infer_split(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::at_least_rank(c, in::split_pieces::x, 2);
  const int64_t ranks = rules::integer(c, "ranks", 2);
  const Value& x = c.in(in::split_pieces::x);
  c.check(x.shape.rows() % ranks == 0, "the ranks must divide the rows");
  c.check(x.layout.pieces == 0, "takes all rows");
  for (int k = 0; k < ranks; ++k) c.out_piece(in::split_pieces::x, k, int(ranks));
}

// Inputs [rows,C], all alike, from `first` on.
void check_pieces(const Infer& c, size_t first) {
  rules::contiguous(c);
  c.check(int64_t(c.inputs() - first) == rules::integer(c, "ranks", 2), "needs one piece for each rank");
  for (size_t i = first; i < c.inputs(); ++i) {
    rules::rank(c, i, 2);
    rules::floating(c, i);
    c.same_shape(i, first);
    c.same_dtype(i, first);
  }
}

void infer_join(Infer& c) {
  check_pieces(c, in::join_pieces::pieces);
  const Value& piece = c.in(in::join_pieces::pieces);
  const int64_t rows = piece.shape[0] * int64_t(c.inputs()), seq = rules::integer(c, "seq", 1);
  c.check(rows % seq == 0, "attribute 'seq' must divide the rows");
  c.out(piece.dtype, {rows / seq, seq, piece.shape[1]});
}

void infer_sum(Infer& c) {
  namespace at = in::sum_pieces;
  check_pieces(c, at::pieces);
  const Value& x = c.in(at::pieces);
  if (c.has(at::b)) {
    rules::shape(c, at::b, {x.shape.back()});
    c.same_dtype(at::b, at::pieces);
  }
  c.out(x.dtype, x.shape);
}

Cost no_cost(const Program&, const Instr&) { return {}; }

Cost cost_of_piece(const Program& p, const Instr& i) {
  auto bytes = double(p.at(i.out[0]).bytes());
  return {0, bytes, bytes};
}

Cost cost_join(const Program& p, const Instr& i) {
  const Value& x = p.at(i.out[out::join_pieces::x]);
  Cost c;
  for (ValueId v : i.in)
    if (const Value& in = p.at(v); in.layout.storage != x.layout.storage)
      c.bytes_read += double(in.bytes()), c.bytes_written += double(in.bytes());
  return c;
}

Cost cost_sum(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(i.in.size()) * double(p.at(i.out[0]).numel()));
}

}  // namespace

PieceExchange piece_exchange(const Instr& instr, int place) {
  const int ranks = int(instr.attrs.integer("ranks")), k = int(instr.attrs.integer("piece"));
  const int further = (place + k) % ranks, before = (place - k + ranks) % ranks;
  return instr.op == &op_gather_piece ? PieceExchange{before, further} : PieceExchange{further, before};
}

const OpDef op_own_piece = {.name = "own_piece",
                            .inputs = in::own_piece::names,
                            .outputs = out::own_piece::names,
                            .help = "x[rows,C] -> y: piece 0 of the rows of all ranks, a view",
                            .op_class = OpClass::movement,
                            .infer = infer_own,
                            .place = cut<"*C -> *C; ..">,
                            .exchange = Exchange{Placement::shard(0), Placement().rows_of(0)},
                            .cost = no_cost};

const OpDef op_gather_piece = {.name = "gather_piece",
                               .inputs = in::gather_piece::names,
                               .outputs = out::gather_piece::names,
                               .help = "x[rows,C] -> y[rows,C]: the rows of the rank `piece` places further",
                               .op_class = OpClass::communication,
                               .infer = infer_piece,
                               .place = cut<"*C -> *C; ..">,
                               .exchange = Exchange{Placement::shard(0), Placement().rows_of(0)},
                               .cost = cost_of_piece};

const OpDef op_scatter_piece = {
    .name = "scatter_piece",
    .inputs = in::scatter_piece::names,
    .outputs = out::scatter_piece::names,
    .help = "x[rows,C] -> y[rows,C]: addends for this rank's rows, from the rank `piece` places before",
    .op_class = OpClass::communication,
    .infer = infer_piece,
    .place = cut<"*C -> *C; ..">,
    .exchange = Exchange{Placement::partial().rows_of(0), Placement::own().rows_of(0)},
    .cost = cost_of_piece};

const OpDef op_split_pieces = {.name = "split_pieces",
                               .inputs = in::split_pieces::names,
                               .outputs = out::split_pieces::names,
                               .help = "x[..,C] -> x[rows,C], ..: its pieces, views",
                               .op_class = OpClass::movement,
                               .infer = infer_split,
                               .place = cut<"..C -> *C; ..">,
                               .cost = no_cost};

const OpDef op_join_pieces = {.name = "join_pieces",
                              .inputs = in::join_pieces::names,
                              .outputs = out::join_pieces::names,
                              .help = "x[rows,C], .. -> [B,T,C]: all pieces; copies what is not in place",
                              .op_class = OpClass::movement,
                              .infer = infer_join,
                              .place = cut<"*C -> ..C; ..">,
                              .cost = cost_join};

const OpDef op_sum_pieces = {
    .name = "sum_pieces",
    .inputs = in::sum_pieces::names,
    .outputs = out::sum_pieces::names,
    .help = "[b[C]], x[rows,C], .. -> y[rows,C]: the sum of the ranks' addends, in rank order, + b",
    .op_class = OpClass::elementwise,
    .infer = infer_sum,
    .place = cut<"C, *C -> *C; ..">,
    .cost = cost_sum};

}  // namespace crest
