// Attention without a T x T matrix in memory: FlashAttention (Dao et al. 2022), forward and
// backward.
#include "ops/attention.h"

#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

// Scale, dropout, positions and window, for queries [B,T].
static void check_mask(const Infer& c, size_t scalars, const Shape& queries) {
  rules::number(c, "scale");
  const double p = c.attrs().number("p", 0.0);
  c.check(p >= 0 && p < 1, "attribute 'p' must be in [0, 1)");
  if (c.has(scalars)) rules::scalars(c, scalars);
  if (p > 0) {
    c.check(c.has(scalars), "dropout (p > 0) needs the scalars input");
    rules::integer(c, "rng_id", 0);
  }
  if (c.has(scalars + 1)) rules::positions(c, scalars + 1, queries);
  rules::window(c);
}

// Attributes, the scalars at input `scalars` and the positions after them; returns the heads of qkv
// at input `qkv`.
static rules::Heads check_attention(const Infer& c, size_t qkv, size_t scalars) {
  rules::Heads h = rules::heads(c, qkv);
  rules::flag(c, "causal");
  check_mask(c, scalars, {h.batch, h.seq});
  const bool causal = c.attrs().integer("causal", 0) == 1;
  if (c.has(scalars + 1)) c.check(causal, "positions need attribute 'causal' to be 1");
  if (rules::window(c)) c.check(causal, "a window needs attribute 'causal' to be 1");
  return h;
}

static void infer_attention(Infer& c) {
  rules::inputs(c, 1, 3);
  rules::contiguous(c);
  auto h = check_attention(c, in::attention::qkv, in::attention::scalars);
  DType t = c.in(in::attention::qkv).dtype;
  c.out(t, {h.batch, h.seq, h.heads * h.head_dim});
  c.out(rules::stat(t), {h.batch, h.heads, h.seq});
}

static void infer_attention_grad(Infer& c) {
  rules::inputs(c, 4, 6);
  rules::contiguous(c);
  auto h = check_attention(c, in::attention_grad::qkv, in::attention_grad::scalars);
  for (size_t i : {in::attention_grad::d_o, in::attention_grad::o}) {
    rules::shape(c, i, {h.batch, h.seq, h.heads * h.head_dim});
    c.same_dtype(i, in::attention_grad::qkv);
  }
  rules::shape(c, in::attention_grad::lse, {h.batch, h.heads, h.seq});
  rules::dtype(c, in::attention_grad::lse, rules::stat(c.in(in::attention_grad::qkv).dtype));
  c.out_like(in::attention_grad::qkv);
}

// Queries and keys that see each other.
static double causal_pairs(const Attrs& attrs, int64_t keys) {
  const auto t = double(keys);
  double pairs = t * (t + 1) / 2;
  if (const int64_t window = window_of(attrs, keys)) {
    const double hidden = t - double(window);
    pairs -= hidden * (hidden + 1) / 2;  // the triangle of keys left of the windows
  }
  return pairs;
}

// Two products of T x T x D per head; causal: only the lower triangle is computed, of a window only
// its band. How much of it documents leave (positions) is known to the data alone: not counted
// here.
static double forward_flops(const Instr& i, const Value& o) {
  const double b = double(o.shape[0]), t = double(o.shape[1]), width = double(o.shape[2]);
  return 4 * b * width * (i.attrs.integer("causal", 0) ? causal_pairs(i.attrs, o.shape[1]) : t * t);
}

static Cost cost_attention(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, forward_flops(i, p.at(i.out[out::attention::o])));
}

// Five products instead of two: scores again, dv, dp, dq, dk.
static Cost cost_attention_grad(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 2.5 * forward_flops(i, p.at(i.in[in::attention_grad::d_o])));
}

static void grad(Grad& g) {
  if (!g.needs(in::attention::qkv)) return;
  std::vector<ValueId> in = {g.dout(out::attention::o), g.in(in::attention::qkv), g.out(out::attention::o),
                             g.out(out::attention::lse), g.in(in::attention::scalars)};
  if (g.in(in::attention::positions) != no_value) in.push_back(g.in(in::attention::positions));
  g.add(in::attention::qkv, g.builder().emit1("attention_grad", std::move(in), g.attrs()));
}

// Dropout counts the heads of the model.
static const char* place_attention(const Program& p, const Instr& i) {
  return i.attrs.number("p", 0) > 0 ? cut<"BTh, -, BT -> BTH, BHT; B H@">(p, i)
                                    : cut<"BTh, -, BT -> BTH, BHT; B H">(p, i);
}
static const char* place_grad(const Program& p, const Instr& i) {
  return i.attrs.number("p", 0) > 0 ? cut<"BTH, BTh, BTH, BHT, -, BT -> BTh; B H@">(p, i)
                                    : cut<"BTH, BTh, BTH, BHT, -, BT -> BTh; B H">(p, i);
}

// Queries q[B,T,heads D] of this rank's chunks, keys and values kv[B,S,2,kv_heads D] of whole
// sequences.
static void check_rows(const Infer& c, size_t q, size_t scalars) {
  rules::rank(c, q, 3);
  rules::floating(c, q);
  rules::rank(c, q + 1, 4);
  c.same_dtype(q + 1, q);
  const Shape& rows = c.in(q).shape;
  const int64_t heads = rules::integer(c, "heads", 1), kv_heads = rules::integer(c, "kv_heads", 1);
  c.check(heads % kv_heads == 0, "the key/value heads must divide the heads");
  c.check(rows[2] % heads == 0, "the heads must divide the width of q");
  const int64_t ranks = rules::integer(c, "ranks", 1);
  rules::shape(c, q + 1, {rows[0], rows[1] * ranks, 2, rows[2] / heads * kv_heads});
  c.check(rows[1] % 2 == 0, "a rank has two chunks of each sequence");
  check_mask(c, scalars, rows);
}

static Shape shape_of_lse(const Infer& c, size_t q) {
  const Shape& rows = c.in(q).shape;
  return {rows[0], c.attrs().integer("heads"), rows[1]};
}

static void infer_rows(Infer& c) {
  namespace at = in::attention_rows;
  rules::inputs(c, 2, 4);
  rules::contiguous(c);
  check_rows(c, at::q, at::scalars);
  c.out_like(at::q);
  c.out(rules::stat(c.in(at::q).dtype), shape_of_lse(c, at::q));
}

static void infer_rows_grad(Infer& c) {
  namespace at = in::attention_rows_grad;
  rules::inputs(c, 5, 7);
  rules::contiguous(c);
  check_rows(c, at::q, at::scalars);
  for (size_t i : {at::d_o, at::o}) {
    c.same_shape(i, at::q);
    c.same_dtype(i, at::q);
  }
  rules::shape(c, at::lse, shape_of_lse(c, at::q));
  rules::dtype(c, at::lse, rules::stat(c.in(at::q).dtype));
  c.out_like(at::q);
  c.out_like(at::kv);
}

// The mean over the ranks, who all have as many pairs. A window leaves ranks different numbers
// where it ends within the first chunks.
static double rows_flops(const Program& p, const Instr& i, size_t q) {
  const Shape &rows = p.at(i.in[q]).shape, &keys = p.at(i.in[q + 1]).shape;
  const double pairs = causal_pairs(i.attrs, keys[1]);
  return 4 * double(rows[0]) * double(rows[2]) * pairs / double(i.attrs.integer("ranks"));
}
static Cost cost_rows(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, rows_flops(p, i, in::attention_rows::q));
}
static Cost cost_rows_grad(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 2.5 * rows_flops(p, i, in::attention_rows_grad::q));
}

static void grad_rows(Grad& g) {
  namespace at = in::attention_rows;
  std::vector<ValueId> in = {
      g.dout(out::attention_rows::o),  g.in(at::q),      g.in(at::kv), g.out(out::attention_rows::o),
      g.out(out::attention_rows::lse), g.in(at::scalars)};
  if (g.in(at::positions) != no_value) in.push_back(g.in(at::positions));
  const std::vector<ValueId> d = g.builder().emit("attention_rows_grad", std::move(in), g.attrs());
  g.add(at::q, d[out::attention_rows_grad::dq]);
  g.add(at::kv, d[out::attention_rows_grad::dkv]);
}

static const char* place_rows(const Program& p, const Instr& i) {
  return i.attrs.number("p", 0) > 0 ? cut<"BTH, BSPH, -, BT -> BTH, BHT; B T% H@">(p, i)
                                    : cut<"BTH, BSPH, -, BT -> BTH, BHT; B T% H">(p, i);
}
static const char* place_rows_grad(const Program& p, const Instr& i) {
  return i.attrs.number("p", 0) > 0 ? cut<"BTH, BTH, BSPH, BTH, BHT, -, BT -> BTH, BSPH; B T%+ H@">(p, i)
                                    : cut<"BTH, BTH, BSPH, BTH, BHT, -, BT -> BTH, BSPH; B T%+ H">(p, i);
}

const OpDef op_attention = {
    .name = "attention",
    .inputs = in::attention::names,
    .outputs = out::attention::names,
    .help = "qkv[B,T,W], [scalars], [positions i32[B,T]] -> o[B,T,heads*head_dim], lse[B,heads,T]",
    .op_class = OpClass::attention,
    .infer = infer_attention,
    .place = place_attention,
    .cost = cost_attention,
    .grad = grad,
    .cheap = true,
    .half_compute = true};

const OpDef op_attention_grad = {.name = "attention_grad",
                                 .inputs = in::attention_grad::names,
                                 .outputs = out::attention_grad::names,
                                 .help = "d_o, qkv, o, lse, [scalars], [positions] -> dqkv",
                                 .op_class = OpClass::attention,
                                 .infer = infer_attention_grad,
                                 .place = place_grad,
                                 .cost = cost_attention_grad};

const OpDef op_attention_rows = {
    .name = "attention_rows",
    .inputs = in::attention_rows::names,
    .outputs = out::attention_rows::names,
    .help =
        "q[B,T / ranks,heads D], kv[B,T,2,kv_heads D], [scalars], [positions i32[B,T / ranks]] -> o like q, "
        "lse[B,heads,T / ranks]: causal attention of this rank's queries",
    .op_class = OpClass::attention,
    .infer = infer_rows,
    .place = place_rows,
    .cost = cost_rows,
    .grad = grad_rows,
    .cheap = true,
    .half_compute = true};

const OpDef op_attention_rows_grad = {
    .name = "attention_rows_grad",
    .inputs = in::attention_rows_grad::names,
    .outputs = out::attention_rows_grad::names,
    .help = "d_o, q, kv, o, lse, [scalars], [positions] -> dq, dkv: of this rank's queries only",
    .op_class = OpClass::attention,
    .infer = infer_rows_grad,
    .place = place_rows_grad,
    .cost = cost_rows_grad};

}  // namespace crest
