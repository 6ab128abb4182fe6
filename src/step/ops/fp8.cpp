// Matmuls on 8-bit floats: quantize and quantize_blocks make the operands, linear_fp8 multiplies
// them, amax_history and take_counts end the step of the scales.
#include "ops/fp8.h"

#include <bit>

#include "core/round_up.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

int64_t fp8_padded(int64_t rows) { return round_up(rows, fp8_multiple); }
int64_t fp8_blocks_of(int64_t n) { return round_up(n, fp8_block) / fp8_block; }

Fp8Blocks fp8_blocks(const Attrs& attrs) {
  if (!attrs.has("blocks")) return Fp8Blocks::none;
  return attrs.text("blocks") == name_of(Fp8Blocks::rows) ? Fp8Blocks::rows : Fp8Blocks::squares;
}

bool fp8_fast_accumulation(const Attrs& attrs) { return attrs.integer("fast_accumulation", 0) != 0; }

Shape fp8_scales(Fp8Blocks blocks, int64_t rows, int64_t columns) {
  switch (blocks) {
    case Fp8Blocks::none: return {1};
    case Fp8Blocks::rows: return {fp8_blocks_of(columns), rows};
    case Fp8Blocks::squares: return {fp8_blocks_of(rows), round_up(fp8_blocks_of(columns), 4)};
  }
  return {};
}

Fp8ScalePlace::Fp8ScalePlace(Fp8Blocks blocks, const Shape& scales) {
  if (blocks == Fp8Blocks::rows) row = 1, column = scales[1];
  if (blocks == Fp8Blocks::squares) shift = std::countr_zero(uint64_t(fp8_block)), row = scales[1], column = 1;
}

static DType format_of(const Infer& c) {
  c.check(c.attrs().has("format"), "attribute 'format' is missing");
  auto t = parse_dtype(c.attrs().text("format"));
  c.check(t && is_fp8(*t), "attribute 'format' must be e4m3 or e5m2");
  return *t;
}

// The transpose has a column for each row of x, and zeros up to a multiple of 16.
static Shape transposed(const Value& x) { return {x.shape.back(), fp8_padded(x.shape.rows())}; }

// q of x with its scale, and the tables amax, record and counts: inputs `tables` and the two after
// it.
static void quantized(Infer& c, const Value& x, size_t tables) {
  const size_t amax = tables, record = tables + 1, counts = tables + 2;
  rules::floating(c, amax);
  rules::rank(c, amax, 2);
  rules::rank(c, record, 2);
  rules::floating(c, record);
  rules::dtype(c, counts, DType::i64);
  int64_t slots = c.in(amax).shape[1];
  c.check(c.in(record).shape[0] == slots, "amax and record differ in their number of slots");
  rules::shape(c, counts, {slots, 2});
  c.check(rules::integer(c, "slot", 0) < slots, "attribute 'slot' is not below the number of slots");
  rules::integer(c, "margin", 0);
  c.out(format_of(c), x.shape);
  c.out(rules::stat(x.dtype), {1});
  c.out_in_place(record);
  c.out_in_place(counts);
}

// Attribute `blocks`, checked.
static Fp8Blocks blocks_of(const Infer& c) {
  if (!c.attrs().has("blocks")) return Fp8Blocks::none;
  const std::string& text = c.attrs().text("blocks");
  c.check(text == name_of(Fp8Blocks::rows) || text == name_of(Fp8Blocks::squares),
          "attribute 'blocks' must be 1x128 or 128x128");
  return fp8_blocks(c.attrs());
}

// q of x with scales of its blocks, and the table `counts`.
static void quantized_in_blocks(Infer& c, const Value& x, size_t counts, Fp8Blocks blocks) {
  rules::rank(c, counts, 2);
  rules::dtype(c, counts, DType::i64);
  c.check(c.in(counts).shape[1] == 2, "counts must have two columns");
  c.check(rules::integer(c, "slot", 0) < c.in(counts).shape[0], "attribute 'slot' is not below the number of slots");
  c.out(format_of(c), x.shape);
  c.out(rules::stat(x.dtype), fp8_scales(blocks, x.shape.rows(), x.shape.back()));
  c.out_in_place(counts);
}
// The transpose of x with scales of its blocks.
static void transposed_in_blocks(Infer& c, const Value& x, Fp8Blocks blocks) {
  c.out(format_of(c), transposed(x));
  c.out(rules::stat(x.dtype), fp8_scales(blocks, x.shape.back(), x.shape.rows()));
}

static void infer_quantize(Infer& c) {
  namespace at = in::quantize;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  quantized(c, c.in(at::x), at::amax);
  if (rules::flag(c, "columns")) c.out(format_of(c), transposed(c.in(at::x)));
}

// Of rows like x: [gamma], and [beta] for a layer norm. Whether it is one.
static bool norm_weights(Infer& c, size_t x, size_t gamma, size_t beta) {
  c.check(c.attrs().has("kind"), "attribute 'kind' is missing");
  const std::string& kind = c.attrs().text("kind");
  c.check(kind == "layer" || kind == "rms", "attribute 'kind' must be layer or rms");
  for (size_t i : {gamma, beta})
    if (c.has(i)) {
      rules::shape(c, i, {c.in(x).shape.back()});
      c.same_dtype(i, x);
    }
  c.check(kind == "layer" || !c.has(beta), "an rms norm has no beta");
  return kind == "layer";
}

// A norm makes rows. Rows have no square blocks.
static Fp8Blocks blocks_of_norm(const Infer& c) {
  const Fp8Blocks blocks = blocks_of(c);
  c.check(blocks != Fp8Blocks::squares, "attribute 'blocks' of a norm must be 1x128");
  return blocks;
}

static void infer_norm_quantize(Infer& c) {
  namespace at = in::norm_quantize;
  rules::inputs(c, at::gamma, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::a, 1);
  rules::floating(c, at::a);
  const Fp8Blocks blocks = blocks_of_norm(c);
  for (size_t i : {size_t(at::amax), size_t(at::record)})
    c.check(c.has(i) == (blocks == Fp8Blocks::none), blocks == Fp8Blocks::none
                                                         ? "amax and record are required"
                                                         : "scales of blocks have neither amax nor record");
  c.check(c.has(at::counts), "counts is required");
  if (c.has(at::b)) {
    c.same_shape(at::b, at::a);
    c.same_dtype(at::b, at::a);
  }
  const bool drops = rules::drops(c, at::scalars);
  c.check(c.has(at::b) || !drops, "dropout is that of b, which is absent");
  if (drops) rules::at_least_rank(c, at::a, 2);  // samples and rows
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  const bool layer = norm_weights(c, at::a, at::gamma, at::beta);
  const Value& a = c.in(at::a);
  if (blocks == Fp8Blocks::none)
    quantized(c, a, at::amax);
  else
    quantized_in_blocks(c, a, at::counts, blocks);
  c.out(rules::stat(a.dtype), {a.shape.rows()});
  if (layer) c.out(rules::stat(a.dtype), {a.shape.rows()});
  if (c.has(at::b)) c.out_like(at::a);
}

static void infer_norm_quantize_columns(Infer& c) {
  namespace at = in::norm_quantize_columns;
  rules::inputs(c, at::gamma, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  const bool layer = norm_weights(c, at::x, at::gamma, at::beta);
  c.check(c.has(at::rstd), "input 'rstd' is required");
  c.check(c.has(at::mean) == layer, layer ? "a layer norm needs the saved mean" : "an rms norm has no mean");
  for (size_t i : {size_t(at::rstd), size_t(at::mean)})
    if (c.has(i)) {
      rules::shape(c, i, {c.in(at::x).shape.rows()});
      rules::dtype(c, i, rules::stat(c.in(at::x).dtype));
    }
  const Fp8Blocks blocks = blocks_of_norm(c);
  c.check(c.has(at::scale) == (blocks == Fp8Blocks::none),
          blocks == Fp8Blocks::none ? "needs the scale" : "makes scales of blocks and reads none");
  if (blocks != Fp8Blocks::none) return transposed_in_blocks(c, c.in(at::x), blocks);
  rules::floating(c, at::scale);
  rules::shape(c, at::scale, {1});
  c.out(format_of(c), transposed(c.in(at::x)));
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

static void infer_quantize_blocks(Infer& c) {
  namespace at = in::quantize_blocks;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  const Fp8Blocks blocks = blocks_of(c);
  c.check(blocks != Fp8Blocks::none, "attribute 'blocks' is missing");
  quantized_in_blocks(c, c.in(at::x), at::counts, blocks);
  if (rules::flag(c, "columns")) transposed_in_blocks(c, c.in(at::x), blocks);
}

static void infer_quantize_blocks_columns(Infer& c) {
  namespace at = in::quantize_blocks_columns;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  const Fp8Blocks blocks = blocks_of(c);
  c.check(blocks != Fp8Blocks::none, "attribute 'blocks' is missing");
  transposed_in_blocks(c, c.in(at::x), blocks);
}

static void infer_take_counts(Infer& c) {
  namespace at = in::take_counts;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  for (size_t i : {size_t(at::counts), size_t(at::lost)}) rules::dtype(c, i, DType::i64);
  c.same_shape(at::lost, at::counts);
  for (size_t i = 0; i < at::count; ++i) c.out_in_place(i);
}

static void infer_linear_fp8(Infer& c) {
  namespace at = in::linear_fp8;
  rules::inputs(c, at::b, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::rank(c, at::w, 2);
  for (size_t i : {size_t(at::x), size_t(at::w)}) c.check(is_fp8(c.in(i).dtype), "x and w must be e4m3 or e5m2");
  const Shape &x = c.in(at::x).shape, &w = c.in(at::w).shape;
  c.check(x.back() == w[1], "the last dimension of x is not the last dimension of w");
  const Fp8Blocks blocks = blocks_of(c);
  for (size_t i : {size_t(at::x_scale), size_t(at::w_scale)}) rules::floating(c, i);
  rules::shape(c, at::x_scale, fp8_scales(fp8_blocks_of_x(blocks), x.rows(), w[1]));
  rules::shape(c, at::w_scale, fp8_scales(blocks, w[0], w[1]));
  c.check(blocks == Fp8Blocks::none || !fp8_fast_accumulation(c.attrs()),
          "has scales of blocks or fast accumulation, not both");
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
  rules::rank(c, at::amax, 2);
  rules::floating(c, at::amax);
  rules::rank(c, at::record, 2);
  rules::floating(c, at::record);
  rules::dtype(c, at::counts, DType::i64);
  rules::dtype(c, at::lost, DType::i64);
  int64_t slots = c.in(at::amax).shape[1];
  c.check(c.in(at::record).shape[0] == slots, "amax and record differ in their number of slots");
  rules::shape(c, at::counts, {slots, 2});
  rules::shape(c, at::lost, {slots, 2});
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

// One scaling an element and one comparison for the largest magnitude of its block; of both forms.
static Cost cost_quantize_blocks(const Program& p, const Instr& i) {
  namespace to = out::quantize_blocks;
  const Value& x = p.at(i.in[in::quantize_blocks::x]);
  Cost c;
  c.flops = double(x.numel()) * (i.out.size() > to::t ? 4 : 2);
  c.bytes_read = double(x.bytes());
  for (size_t out = 0; out < i.out.size(); ++out)
    if (out != to::counts) c.bytes_written += double(p.at(i.out[out]).bytes());
  return c;
}

// The element-wise part of a norm, and the scaling; the tables are a few bytes.
static Cost cost_norm_quantize(const Program& p, const Instr& i) {
  namespace at = in::norm_quantize;
  namespace to = out::norm_quantize;
  double per_element = (i.attrs.text("kind") == "layer" ? 8 : 4) + 1;
  Cost c;
  auto has = [&](size_t in) { return in < i.in.size() && i.in[in] != no_value; };
  for (size_t in : {size_t(at::a), size_t(at::gamma), size_t(at::b), size_t(at::beta)})
    if (has(in)) c.bytes_read += double(p.at(i.in[in]).bytes());
  for (size_t out = 0; out < i.out.size(); ++out)
    if (out <= to::scale || out >= norm_quantize_rstd(i.attrs)) c.bytes_written += double(p.at(i.out[out]).bytes());
  if (has(at::b)) per_element += 1;
  if (has(at::scalars)) per_element += 2;
  c.flops = per_element * double(p.at(i.out[to::q]).numel());
  return c;
}

static const char* place_fp8(const Program& p, const Instr& i) {
  bool bias = i.in.size() > in::linear_fp8::b && i.in[in::linear_fp8::b] != no_value;
  return bias ? cut<"..K, NK, ~, ~, N -> ..N; .. N">(p, i) : cut<"..K, NK, ~, ~, N, ..N -> ..N; .. N K+">(p, i);
}

static const char* place_norm_quantize(const Program& p, const Instr& i) {
  return i.attrs.has("blocks") ? cut<"..C, C, -, ~, ~, ..C, C, - -> ..C, ~, ~, *, *, ..C; ..">(p, i)
                               : cut<"..C, C, -, ~, ~, ..C, C, - -> ..C, ~, ~, ~, *, *, ..C; ..">(p, i);
}

const OpDef op_quantize = {
    .name = "quantize",
    .inputs = in::quantize::names,
    .outputs = out::quantize::names,
    .help =
        "x, amax[H,S], record[S,R], counts[S,2] -> q, scale[1], record, counts, [t]: q = x / scale in 8 bits, "
        "saturating; scale from amax of the steps before, or of x; t: q transposed",
    .op_class = OpClass::elementwise,
    .infer = infer_quantize,
    .place = cut<"..C, -, ~ -> ..C, ~, ~, ~, C*; ..">,
    .cost = cost_quantize};

const OpDef op_quantize_columns = {.name = "quantize_columns",
                                   .inputs = in::quantize_columns::names,
                                   .outputs = out::quantize_columns::names,
                                   .help = "x[..,K], scale[1] -> t[K,rows]: x / scale in 8 bits, transposed",
                                   .op_class = OpClass::elementwise,
                                   .infer = infer_quantize_columns,
                                   .place = cut<"..C, ~ -> C*; ..">,
                                   .cost = elementwise_cost<1>};

const OpDef op_quantize_blocks = {.name = "quantize_blocks",
                                  .inputs = in::quantize_blocks::names,
                                  .outputs = out::quantize_blocks::names,
                                  .help =
                                      "x, counts[S,2] -> q, scale[blocks], counts, [t, t_scale]: q = x / scale in 8 "
                                      "bits, with a scale of its own for "
                                      "each block of 1x128 or 128x128; t: the same of the transpose",
                                  .op_class = OpClass::elementwise,
                                  .infer = infer_quantize_blocks,
                                  .place = cut<"..C, ~ -> ..C, ~, ~, C*, ~; ..">,
                                  .cost = cost_quantize_blocks};

const OpDef op_quantize_blocks_columns = {
    .name = "quantize_blocks_columns",
    .inputs = in::quantize_blocks_columns::names,
    .outputs = out::quantize_blocks_columns::names,
    .help =
        "x[..,K] -> t[K,rows], scale[blocks]: the transpose of x / scale in 8 bits, with a scale for each 1x128 or "
        "128x128 of it",
    .op_class = OpClass::elementwise,
    .infer = infer_quantize_blocks_columns,
    .place = cut<"..C -> C*, ~; ..">,
    .cost = elementwise_cost<2>};

const OpDef op_norm_quantize = {
    .name = "norm_quantize",
    .inputs = in::norm_quantize::names,
    .outputs = out::norm_quantize::names,
    .help =
        "a, [gamma], [amax[H,S]], [record[S,R]], counts[S,2], [b], [beta], [scalars] -> q, scale, [record], counts, "
        "rstd, [mean], [s = a + b]: norm of a (+ b) as quantize stores it; with blocks=1x128 as quantize_blocks does, "
        "without amax and record; with scalars b is dropped out",
    .op_class = OpClass::normalization,
    .infer = infer_norm_quantize,
    .place = place_norm_quantize,
    .cost = cost_norm_quantize};

const OpDef op_norm_quantize_columns = {
    .name = "norm_quantize_columns",
    .inputs = in::norm_quantize_columns::names,
    .outputs = out::norm_quantize_columns::names,
    .help =
        "x[..,K], [gamma], rstd, [scale[1]], [mean], [beta] -> t[K,rows], [scale]: norm of x as quantize_columns "
        "stores "
        "it; with blocks=1x128 as quantize_blocks_columns does, which makes the scales",
    .op_class = OpClass::normalization,
    .infer = infer_norm_quantize_columns,
    .place = cut<"..C, C, *, ~, *, C -> C*, ~; ..">,
    .cost = elementwise_cost<5>};

const OpDef op_linear_fp8 = {
    .name = "linear_fp8",
    .inputs = in::linear_fp8::names,
    .outputs = out::linear_fp8::names,
    .help =
        "x[..,K], w[N,K], x_scale, w_scale, [b[N]], [acc[..,N]] -> y[..,N]: x w^T x_scale w_scale + b (+ acc); scales "
        "of the tensors or of their blocks; fast_accumulation: tensor cores may sum in fewer bits than f32",
    .op_class = OpClass::contraction,
    .infer = infer_linear_fp8,
    .place = place_fp8,
    .cost = cost_linear_fp8,
    .accumulators = {{out::linear_fp8::y, in::linear_fp8::acc}}};

const OpDef op_amax_history = {
    .name = "amax_history",
    .inputs = in::amax_history::names,
    .outputs = out::amax_history::names,
    .help =
        "amax[H,S], record[S,R], counts[S,2], lost[S,2] -> the same: amax of the last H steps, lost: counts; "
        "record and counts start again from 0",
    .op_class = OpClass::optimizer,
    .infer = infer_amax_history,
    .place = cut<"-, ~ -> ~">,
    .cost = traffic};

const OpDef op_take_counts = {.name = "take_counts",
                              .inputs = in::take_counts::names,
                              .outputs = out::take_counts::names,
                              .help = "counts[S,2], lost[S,2] -> the same: lost: counts; counts start again from 0",
                              .op_class = OpClass::optimizer,
                              .infer = infer_take_counts,
                              .place = cut<"~ -> ~">,
                              .cost = traffic};

}  // namespace crest
