// RMSNorm of queries and keys before attention (Henry et al. 2020, "Query-Key Normalization for
// Transformers"; Dehghani et al. 2023): of each head, or of all heads of a token as one row.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

namespace {

bool by_head(const Attrs& a) { return a.text("per") == "head"; }

// Elements that share a mean, of queries and of keys; and how many such groups a token has.
struct Groups {
  rules::Heads heads;
  int64_t q_size, k_size, q_count, k_count;
};
Groups groups(const Infer& c, size_t qkv) {
  c.check(c.attrs().has("per"), "attribute 'per' is missing");
  const std::string& per = c.attrs().text("per");
  c.check(per == "head" || per == "row", "attribute 'per' must be head or row");
  Groups g = {rules::heads(c, qkv), 0, 0, 1, 1};
  const rules::Heads& h = g.heads;
  if (per == "head")
    g.q_size = g.k_size = h.head_dim, g.q_count = h.heads, g.k_count = h.kv_heads;
  else
    g.q_size = h.heads * h.head_dim, g.k_size = h.kv_heads * h.head_dim;
  return g;
}

// Both weights, or none; true if they are there.
bool weights(const Infer& c, size_t qkv, size_t q, size_t k, const Groups& g) {
  c.check(c.has(q) == c.has(k), "the weights of queries and keys come together");
  if (!c.has(q)) return false;
  rules::shape(c, q, {g.q_size});
  rules::shape(c, k, {g.k_size});
  c.same_dtype(q, qkv);
  c.same_dtype(k, qkv);
  return true;
}

void infer_norm(Infer& c) {
  namespace at = in::qk_norm;
  rules::inputs(c, 1, 3);
  rules::contiguous(c);
  rules::floating(c, at::qkv);
  const Groups g = groups(c, at::qkv);
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  weights(c, at::qkv, at::q_weight, at::k_weight, g);
  const DType stat = rules::stat(c.in(at::qkv).dtype);
  c.out_like(at::qkv);
  c.out(stat, {g.heads.batch, g.heads.seq, g.q_count});
  c.out(stat, {g.heads.batch, g.heads.seq, g.k_count});
}

void infer_grad(Infer& c) {
  namespace at = in::qk_norm_grad;
  rules::inputs(c, 2, 8);
  c.check(c.has(at::q_rstd) && c.has(at::k_rstd), "the statistics of queries and keys are missing");
  rules::contiguous(c);
  rules::floating(c, at::dy);
  c.same_shape(at::qkv, at::dy);
  c.same_dtype(at::qkv, at::dy);
  const Groups g = groups(c, at::qkv);
  const bool has_weights = weights(c, at::qkv, at::q_weight, at::k_weight, g);
  for (auto [i, count] : {std::pair{size_t(at::q_rstd), g.q_count}, {size_t(at::k_rstd), g.k_count}}) {
    rules::shape(c, i, {g.heads.batch, g.heads.seq, count});
    rules::dtype(c, i, rules::stat(c.in(at::qkv).dtype));
  }
  c.check(has_weights || (!c.has(at::acc_q) && !c.has(at::acc_k)), "accumulators are given without weights");
  const DType t = rules::gradient(c, c.in(at::dy).dtype);
  c.out_like(at::dy);
  if (!has_weights) return;
  rules::out_sum(c, at::acc_q, t, {g.q_size});
  rules::out_sum(c, at::acc_k, t, {g.k_size});
}

Cost cost_norm(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 4 * double(p.at(i.out[0]).numel()));
}
Cost cost_grad(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 10 * double(p.at(i.out[0]).numel()));
}

void grad(Grad& g) {
  namespace at = in::qk_norm;
  Attrs attrs;
  for (const char* key : {"heads", "kv_heads"}) attrs.set(key, g.attrs().integer(key));
  attrs.set("per", g.attrs().text("per")).set("dtype", name(g.weight_grad_dtype()));
  const bool weights = g.in(at::q_weight) != no_value;
  auto out = g.builder().emit(
      "qk_norm_grad",
      {g.dout(out::qk_norm::y), g.in(at::qkv), g.in(at::q_weight), g.in(at::k_weight), g.out(out::qk_norm::q_rstd),
       g.out(out::qk_norm::k_rstd), weights ? g.acc(at::q_weight) : no_value, weights ? g.acc(at::k_weight) : no_value},
      attrs);
  if (g.needs(at::qkv)) g.add(at::qkv, out[out::qk_norm_grad::dqkv]);
  if (weights && g.needs(at::q_weight)) g.set(at::q_weight, out[out::qk_norm_grad::dq]);
  if (weights && g.needs(at::k_weight)) g.set(at::k_weight, out[out::qk_norm_grad::dk]);
}

const char* place_norm(const Program& p, const Instr& i) {
  return by_head(i.attrs) ? cut<"BTh, -, - -> BTh, BTH, BTH; B T H">(p, i)
                          : cut<"BTC, -, - -> BTC, BTG, BTG; B T">(p, i);
}
const char* place_grad(const Program& p, const Instr& i) {
  return by_head(i.attrs) ? cut<"BTh, BTh, D, D, BTH, BTH, D, D -> BTh, D, D; B+ T+ H+">(p, i)
                          : cut<"BTC, BTC, Q, K, BTG, BTG, Q, K -> BTC, Q, K; B+ T+">(p, i);
}

}  // namespace

const OpDef op_qk_norm = {
    .name = "qk_norm",
    .inputs = in::qk_norm::names,
    .outputs = out::qk_norm::names,
    .help =
        "qkv[B,T,W], [q_weight], [k_weight] -> y: qkv with an rms norm of queries and keys, per head or row; q_rstd, "
        "k_rstd",
    .op_class = OpClass::normalization,
    .infer = infer_norm,
    .place = place_norm,
    .cost = cost_norm,
    .grad = grad,
    .cheap = true,
    .full_precision = true};

const OpDef op_qk_norm_grad = {
    .name = "qk_norm_grad",
    .inputs = in::qk_norm_grad::names,
    .outputs = out::qk_norm_grad::names,
    .help = "dy, qkv, [q_weight], [k_weight], q_rstd, k_rstd, [acc_q], [acc_k] -> dqkv, [dq], [dk]",
    .op_class = OpClass::normalization,
    .infer = infer_grad,
    .place = place_grad,
    .cost = cost_grad,
    .may_overlay = {{out::qk_norm_grad::dqkv, in::qk_norm_grad::dy}},
    .accumulators = {{out::qk_norm_grad::dq, in::qk_norm_grad::acc_q},
                     {out::qk_norm_grad::dk, in::qk_norm_grad::acc_k}}};

}  // namespace crest
