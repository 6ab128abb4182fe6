// Attention without a T x T matrix in memory: FlashAttention (Dao et al. 2022), forward and
// backward.
#include "ops/attention.h"

#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

// Attributes, the scalars at input `scalars` and the positions after them; returns the heads of qkv
// at input `qkv`.
static rules::Heads check_attention(const Infer& c, size_t qkv, size_t scalars) {
  rules::Heads h = rules::heads(c, qkv);
  rules::number(c, "scale");
  rules::flag(c, "causal");
  double p = c.attrs().number("p", 0.0);
  c.check(p >= 0 && p < 1, "attribute 'p' must be in [0, 1)");
  if (c.has(scalars)) rules::scalars(c, scalars);
  if (p > 0) {
    c.check(c.has(scalars), "dropout (p > 0) needs the scalars input");
    rules::integer(c, "rng_id", 0);
  }
  if (c.has(scalars + 1)) {
    rules::positions(c, scalars + 1, {h.batch, h.seq});
    c.check(c.attrs().integer("causal", 0) == 1, "positions need attribute 'causal' to be 1");
  }
  if (rules::window(c)) c.check(c.attrs().integer("causal", 0) == 1, "a window needs attribute 'causal' to be 1");
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

// Two products of T x T x D per head; causal: only the lower triangle is computed, of a window only
// its band. How much of it documents leave (positions) is known to the data alone: not counted
// here.
static double forward_flops(const Instr& i, const Value& o) {
  double b = double(o.shape[0]), t = double(o.shape[1]), width = double(o.shape[2]);
  double pairs = i.attrs.integer("causal", 0) ? t * (t + 1) / 2 : t * t;
  if (int64_t window = window_of(i.attrs, o.shape[1])) {
    double hidden = t - double(window);
    pairs -= hidden * (hidden + 1) / 2;  // the triangle of keys left of the windows
  }
  return 4 * b * pairs * width;
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

}  // namespace crest
