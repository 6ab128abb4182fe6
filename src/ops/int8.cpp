// Weights in 8 bits: integers with a scale for each row (passes/int8_weights.cpp).
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void check_rows(const Infer& c, size_t table, size_t scale) {
  rules::rank(c, table, 2);
  rules::dtype(c, table, DType::i8);
  rules::floating(c, scale);
  rules::shape(c, scale, {c.in(table).shape[0]});
}

static void infer_linear_int8(Infer& c) {
  namespace at = in::linear_int8;
  rules::inputs(c, at::b, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  check_rows(c, at::w, at::scale);
  const Shape &x = c.in(at::x).shape, &w = c.in(at::w).shape;
  c.check(x.back() == w[1], "the last dimension of x is not the last dimension of w");
  if (c.has(at::b)) {
    rules::shape(c, at::b, {w[0]});
    rules::floating(c, at::b);
  }
  c.out(c.in(at::x).dtype, x.with_back(w[0]));
}

static void infer_embedding_int8(Infer& c) {
  namespace at = in::embedding_int8;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::rank(c, at::ids, 2);
  rules::dtype(c, at::ids, DType::i32);
  check_rows(c, at::table, at::scale);
  DType t = c.dtype_attr(DType::f32);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  const Shape& ids = c.in(at::ids).shape;
  c.out(t, {ids[0], ids[1], c.in(at::table).shape[1]});
}

// 2 MNK; scale and bias add one operation per output each.
static Cost cost_linear_int8(const Program& p, const Instr& i) {
  double y = double(p.at(i.out[out::linear_int8::y]).numel());
  bool bias = i.in.size() > in::linear_int8::b && i.in[in::linear_int8::b] != no_value;
  return traffic_with_flops(p, i, y * (2.0 * double(p.at(i.in[in::linear_int8::w]).shape[1]) + (bias ? 2 : 1)));
}

// Only the rows that are looked up are read.
static Cost cost_embedding_int8(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[in::embedding_int8::ids]), &y = p.at(i.out[out::embedding_int8::y]);
  Cost c;
  c.flops = double(y.numel());
  c.bytes_read = double(ids.bytes()) + double(ids.numel()) * 4 + double(y.numel());
  c.bytes_written = double(y.bytes());
  return c;
}

const OpDef op_linear_int8 = {.name = "linear_int8",
                              .inputs = in::linear_int8::names,
                              .outputs = out::linear_int8::names,
                              .help = "x[..,K], w[N,K] of int8, scale[N], [b[N]] -> y[..,N]: (x w^T) scale + b",
                              .op_class = OpClass::contraction,
                              .infer = infer_linear_int8,
                              .cost = cost_linear_int8};

const OpDef op_embedding_int8 = {
    .name = "embedding_int8",
    .inputs = in::embedding_int8::names,
    .outputs = out::embedding_int8::names,
    .help = "ids[B,T], table[V,C] of int8, scale[V] -> y[B,T,C]: rows of the table times their scale; 0 for other ids",
    .op_class = OpClass::movement,
    .infer = infer_embedding_int8,
    .cost = cost_embedding_int8};

}  // namespace crest
