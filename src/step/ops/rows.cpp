// Splits a tensor along its leading dimensions into chunks of rows, and joins them again. A row is
// one entry of the leading dimensions: the values of one token. Also takes a matrix out of a flat
// group of parameters.
#include <algorithm>

#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

// Leading dimensions that together hold `rows` entries are dropped; the others go to `rest`. False
// if no leading dimensions hold exactly `rows`.
static bool behind(const Shape& s, int64_t rows, Shape& rest) {
  int64_t leading = 1;
  int d = 0;
  while (d < s.rank() && (d == 0 || leading < rows)) leading *= s[d++];
  for (; d < s.rank(); ++d) rest.push_back(s[d]);
  return leading == rows;
}

static Shape piece(int64_t rows, const Shape& rest) {
  Shape s = {rows};
  for (int d = 0; d < rest.rank(); ++d) s.push_back(rest[d]);
  return s;
}

static void infer_split(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  int64_t of = rules::integer(c, "of", 1), rows = rules::integer(c, "rows", 1);
  Shape rest;
  c.check(behind(c.in(in::split_rows::x).shape, of, rest), "no leading dimensions hold 'of' rows");
  for (int64_t first = 0; first < of; first += rows) {
    Shape s = piece(std::min(rows, of - first), rest);
    c.out_view(in::split_rows::x, first * rest.numel(), s, s.contiguous_strides());
  }
}

static void infer_member(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::member::x, 1);
  int64_t offset = rules::integer(c, "offset", 0);
  rules::flag(c, "each");
  Shape s = {rules::integer(c, "rows", 1), rules::integer(c, "columns", 1)};
  c.check(s.numel() <= c.in(in::member::x).numel() - offset, "the matrix reaches beyond its group");
  c.out_view(in::member::x, offset, s, s.contiguous_strides());
}

static void infer_join(Infer& c) {
  c.check(c.inputs() > 0, "needs at least one input");
  rules::contiguous(c);
  rules::at_least_rank(c, in::join_rows::parts, 1);
  int64_t rows = 0;
  Shape rest;
  behind(c.in(in::join_rows::parts).shape, c.in(in::join_rows::parts).shape[0], rest);
  for (size_t i = 0; i < c.inputs(); ++i) {
    rules::at_least_rank(c, i, 1);
    rules::shape(c, i, piece(c.in(i).shape[0], rest));
    c.same_dtype(i, in::join_rows::parts);
    rows += c.in(i).shape[0];
  }
  int64_t batch = c.attrs().has("batch") ? rules::integer(c, "batch", 1) : 0;
  c.check(batch == 0 || rows % batch == 0, "the number of rows is not a multiple of attribute 'batch'");
  c.out(c.in(in::join_rows::parts).dtype, batch ? piece(batch, piece(rows / batch, rest)) : piece(rows, rest));
}

static Cost no_cost(const Program&, const Instr&) { return {}; }

// Chunks already in their place stay there.
static Cost cost_join(const Program& p, const Instr& i) {
  const Value& out = p.at(i.out[out::join_rows::x]);
  Cost c;
  int64_t first = out.layout.offset;
  for (ValueId v : i.in) {
    const Value& in = p.at(v);
    bool placed = in.layout.storage == out.layout.storage && in.layout.offset == first;
    if (!placed) c.bytes_read += double(in.bytes()), c.bytes_written += double(in.bytes());
    first += in.numel();
  }
  return c;
}

const OpDef op_split_rows = {.name = "split_rows",
                             .inputs = in::split_rows::names,
                             .outputs = out::split_rows::names,
                             .help = "x[of,..] -> x[rows,..], ..: views; the last has what is left",
                             .op_class = OpClass::movement,
                             .infer = infer_split,
                             .place = cut<"*_ -> *_; ..">,
                             .cost = no_cost};

const OpDef op_member = {.name = "member",
                         .inputs = in::member::names,
                         .outputs = out::member::names,
                         .help = "x[n] -> y[rows,columns]: the matrix that begins at an element of a group, a view",
                         .op_class = OpClass::movement,
                         .infer = infer_member,
                         .place = cut<"Z -> RC; linear">,
                         .cost = no_cost};

const OpDef op_join_rows = {.name = "join_rows",
                            .inputs = in::join_rows::names,
                            .outputs = out::join_rows::names,
                            .help = "x[rows,..], .. -> [of,..]: inverse of split_rows; copies what is not in place",
                            .op_class = OpClass::movement,
                            .infer = infer_join,
                            .place = cut<"*_ -> *_; .. linear">,
                            .cost = cost_join};

}  // namespace crest
