// Matmuls on 8-bit floats: quantize makes the operands, linear_fp8 multiplies them, amax_history
// ends the step of the scales.
#include "ops/fp8.h"

#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

int64_t fp8_padded(int64_t rows) { return (rows + fp8_multiple - 1) / fp8_multiple * fp8_multiple; }

static DType format_of(const Infer& c) {
  c.check(c.attrs().has("format"), "attribute 'format' is missing");
  auto t = parse_dtype(c.attrs().text("format"));
  c.check(t && is_fp8(*t), "attribute 'format' must be e4m3 or e5m2");
  return *t;
}

// The transpose has a column for each row of x, and zeros up to a multiple of 16.
static Shape transposed(const Value& x) { return {x.shape.back(), fp8_padded(x.shape.rows())}; }

static void infer_quantize(Infer& c) {
  namespace at = in::quantize;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  rules::floating(c, at::amax);
  rules::rank(c, at::amax, 1);
  rules::rank(c, at::record, 2);
  rules::floating(c, at::record);
  rules::dtype(c, at::counts, DType::i64);
  int64_t slots = c.in(at::amax).shape[0];
  c.check(c.in(at::record).shape[0] == slots, "amax and record differ in their number of slots");
  rules::shape(c, at::counts, {slots, 2});
  c.check(rules::integer(c, "slot", 0) < slots, "attribute 'slot' is not below the number of slots");
  rules::integer(c, "margin", 0);
  DType t = format_of(c);
  const Value& x = c.in(at::x);
  c.out(t, x.shape);
  c.out(rules::stat(x.dtype), {1});
  c.out_in_place(at::record);
  c.out_in_place(at::counts);
  if (rules::flag(c, "columns")) c.out(t, transposed(x));
}

static void infer_quantize_columns(Infer& c) {
  namespace at = in::quantize_columns;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  rules::floating(c, at::scale);
  rules::shape(c, at::scale, {1});
  c.out(format_of(c), transposed(c.in(at::x)));
}

static void infer_linear_fp8(Infer& c) {
  namespace at = in::linear_fp8;
  rules::inputs(c, at::b, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::rank(c, at::w, 2);
  for (size_t i : {size_t(at::x), size_t(at::w)}) c.check(is_fp8(c.in(i).dtype), "x and w must be e4m3 or e5m2");
  for (size_t i : {size_t(at::x_scale), size_t(at::w_scale)}) {
    rules::floating(c, i);
    rules::shape(c, i, {1});
  }
  const Shape &x = c.in(at::x).shape, &w = c.in(at::w).shape;
  c.check(x.back() == w[1], "the last dimension of x is not the last dimension of w");
  DType t = c.dtype_attr(DType::f32);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  if (c.has(at::b)) {
    rules::shape(c, at::b, {w[0]});
    rules::floating(c, at::b);
    c.check(!c.has(at::acc), "has a bias or an accumulator, not both");
  }
  rules::out_sum(c, at::acc, t, x.with_back(w[0]));
}

static void infer_amax_history(Infer& c) {
  namespace at = in::amax_history;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::rank(c, at::amax, 1);
  rules::floating(c, at::amax);
  rules::rank(c, at::record, 2);
  rules::floating(c, at::record);
  rules::dtype(c, at::counts, DType::i64);
  rules::dtype(c, at::lost, DType::i64);
  int64_t slots = c.in(at::amax).shape[0];
  c.check(c.in(at::record).shape[0] == slots, "amax and record differ in their number of slots");
  rules::shape(c, at::counts, {slots, 2});
  rules::shape(c, at::lost, {2});
  for (size_t i = 0; i < at::count; ++i) c.out_in_place(i);
}

// 2 MNK; a bias adds one operation per output.
static Cost cost_linear_fp8(const Program& p, const Instr& i) {
  double y = double(p.at(i.out[out::linear_fp8::y]).numel());
  bool bias = i.in.size() > in::linear_fp8::b && i.in[in::linear_fp8::b] != no_value;
  return traffic_with_flops(p, i, y * (2.0 * double(p.at(i.in[in::linear_fp8::w]).shape[1]) + (bias ? 1 : 0)));
}

// One scaling an element. The slot of the tables is a few bytes.
static Cost cost_quantize(const Program& p, const Instr& i) {
  const Value& x = p.at(i.in[in::quantize::x]);
  Cost c;
  c.flops = double(x.numel());
  c.bytes_read = double(x.bytes()), c.bytes_written = double(p.at(i.out[out::quantize::q]).bytes());
  if (i.out.size() > out::quantize::t) c.bytes_written += double(p.at(i.out[out::quantize::t]).bytes());
  return c;
}

const OpDef op_quantize = {
    .name = "quantize",
    .inputs = in::quantize::names,
    .outputs = out::quantize::names,
    .help =
        "x, amax[S], record[S,R], counts[S,2] -> q, scale[1], record, counts, [t]: q = x / scale in 8 bits, "
        "saturating; scale from amax of the step before, or of x; t: q transposed",
    .op_class = OpClass::elementwise,
    .infer = infer_quantize,
    .cost = cost_quantize};

const OpDef op_quantize_columns = {.name = "quantize_columns",
                                   .inputs = in::quantize_columns::names,
                                   .outputs = out::quantize_columns::names,
                                   .help = "x[..,K], scale[1] -> t[K,rows]: x / scale in 8 bits, transposed",
                                   .op_class = OpClass::elementwise,
                                   .infer = infer_quantize_columns,
                                   .cost = elementwise_cost<1>};

const OpDef op_linear_fp8 = {
    .name = "linear_fp8",
    .inputs = in::linear_fp8::names,
    .outputs = out::linear_fp8::names,
    .help = "x[..,K], w[N,K], x_scale, w_scale, [b[N]], [acc[..,N]] -> y[..,N]: x w^T x_scale w_scale + b (+ acc)",
    .op_class = OpClass::contraction,
    .infer = infer_linear_fp8,
    .cost = cost_linear_fp8,
    .accumulators = {{out::linear_fp8::y, in::linear_fp8::acc}}};

const OpDef op_amax_history = {
    .name = "amax_history",
    .inputs = in::amax_history::names,
    .outputs = out::amax_history::names,
    .help =
        "amax[S], record[S,R], counts[S,2], lost[2] -> the same: amax of the step, lost: its counts added up; "
        "record and counts start again from 0",
    .op_class = OpClass::optimizer,
    .infer = infer_amax_history,
    .cost = traffic};

}  // namespace crest
