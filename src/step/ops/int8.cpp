// Weights of 8 bits with a scale for each row (core/int8.h): their products, their rows by token,
// and making floats of them. For evaluation and sampling: none has a gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

// w i8[N,K] and scale[N] at these operands, for results of dtype t.
static void check_rows(const Infer& c, size_t w, size_t scale, DType t) {
  rules::rank(c, w, 2);
  rules::dtype(c, w, DType::i8);
  rules::dtype(c, scale, rules::stat(t));
  rules::shape(c, scale, {c.in(w).shape[0]});
}

static DType result_dtype(const Infer& c) {
  c.check(c.attrs().has("dtype"), "attribute 'dtype' is missing");
  DType t = c.dtype_attr(DType::f32);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  return t;
}

// Of linear_int8 and linear_gelu_int8.
static void infer_linear(Infer& c) {
  namespace at = in::linear_int8;
  rules::inputs(c, at::b, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  const Value& x = c.in(at::x);
  check_rows(c, at::w, at::scale, x.dtype);
  const Shape& w = c.in(at::w).shape;
  c.check(x.shape.back() == w[1], "the last dimension of x is not the last dimension of w");
  if (c.has(at::b)) {
    rules::shape(c, at::b, {w[0]});
    c.same_dtype(at::b, at::x);
  }
  c.out(x.dtype, x.shape.with_back(w[0]));
}

static void infer_dequantize(Infer& c) {
  namespace at = in::dequantize;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  DType t = result_dtype(c);
  if (const Value& q = c.in(at::q); q.dtype == DType::e4m3) {
    rules::at_least_rank(c, at::q, 1);
    rules::dtype(c, at::scale, rules::stat(t));
    rules::shape(c, at::scale, {q.shape.rows()});
  } else {
    check_rows(c, at::q, at::scale, t);
  }
  c.out(t, c.in(at::q).shape);
}

static void infer_embedding(Infer& c) {
  namespace at = in::embedding_int8;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::rank(c, at::ids, 2);
  rules::dtype(c, at::ids, DType::i32);
  DType t = result_dtype(c);
  check_rows(c, at::table, at::scale, t);
  const Shape& ids = c.in(at::ids).shape;
  c.out(t, {ids[0], ids[1], c.in(at::table).shape[1]});
}

// 2 MNK and the scale; a bias adds one operation per output.
static Cost cost_linear(const Program& p, const Instr& i) {
  namespace at = in::linear_int8;
  double y = double(p.at(i.out[out::linear_int8::y]).numel());
  bool bias = i.in.size() > at::b && i.in[at::b] != no_value;
  return traffic_with_flops(p, i, y * (2.0 * double(p.at(i.in[at::w]).shape[1]) + 1 + (bias ? 1 : 0)));
}

static Cost cost_linear_gelu(const Program& p, const Instr& i) {
  Cost c = cost_linear(p, i);
  c.flops += 9.0 * double(p.at(i.out[out::linear_gelu_int8::a]).numel());  // as gelu
  return c;
}

// Only the rows of the ids are read.
static Cost cost_embedding(const Program& p, const Instr& i) {
  const Value &ids = p.at(i.in[in::embedding_int8::ids]), &y = p.at(i.out[out::embedding_int8::y]);
  const Value& scale = p.at(i.in[in::embedding_int8::scale]);
  Cost c;
  c.flops = double(y.numel());
  c.bytes_read = double(ids.bytes()) + double(y.numel()) + double(ids.numel()) * double(size_of(scale.dtype));
  c.bytes_written = double(y.bytes());
  return c;
}

const OpDef op_linear_int8 = {.name = "linear_int8",
                              .inputs = in::linear_int8::names,
                              .outputs = out::linear_int8::names,
                              .help = "x[..,K], w i8[N,K], scale[N], [b[N]] -> y[..,N]: (x w^T) scale + b",
                              .op_class = OpClass::contraction,
                              .infer = infer_linear,
                              .place = cut<"..K, NK, N -> ..N; .. N">,
                              .cost = cost_linear};

const OpDef op_linear_gelu_int8 = {.name = "linear_gelu_int8",
                                   .inputs = in::linear_gelu_int8::names,
                                   .outputs = out::linear_gelu_int8::names,
                                   .help = "x[..,K], w i8[N,K], scale[N], [b[N]] -> a[..,N]: gelu((x w^T) scale + b)",
                                   .op_class = OpClass::contraction,
                                   .infer = infer_linear,
                                   .place = cut<"..K, NK, N -> ..N; .. N">,
                                   .cost = cost_linear_gelu};

const OpDef op_dequantize = {.name = "dequantize",
                             .inputs = in::dequantize::names,
                             .outputs = out::dequantize::names,
                             .help = "q i8[N,K] or e4m3[..,K], scale[rows] -> x like q: each row times its scale",
                             .op_class = OpClass::elementwise,
                             .infer = infer_dequantize,
                             .place = cut<"..C, * -> ..C; ..">,
                             .cost = elementwise_cost<1>};

const OpDef op_embedding_int8 = {
    .name = "embedding_int8",
    .inputs = in::embedding_int8::names,
    .outputs = out::embedding_int8::names,
    .help = "ids i32[B,T], table i8[V,C], scale[V] -> [B,T,C]: row lookup, each row times its scale",
    .op_class = OpClass::embedding,
    .infer = infer_embedding,
    .place = cut<"BT, VC, V -> BTC; B T C">,
    .cost = cost_embedding};

}  // namespace crest
