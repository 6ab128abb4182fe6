// Interleaved qkv[B,T,W] seen as separate heads, and back.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer_split(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  auto h = rules::heads(c, 0, 0);
  int64_t width = c.in(0).shape.back();
  Shape strides = {h.seq * width, h.head_dim, width, 1};
  c.out_view(0, 0, {h.batch, h.heads, h.seq, h.head_dim}, strides);
  if (h.kv_heads == 0) return;
  Shape kv = {h.batch, h.kv_heads, h.seq, h.head_dim};
  c.out_view(0, h.heads * h.head_dim, kv, strides);
  c.out_view(0, (h.heads + h.kv_heads) * h.head_dim, kv, strides);
}

static void infer_join(Infer& c) {
  rules::inputs(c, 1, 3);
  rules::rank(c, 0, 4);
  rules::floating(c, 0);
  const Shape& q = c.in(0).shape;
  int64_t slots = q[1];
  c.check(c.has(1) == c.has(2), "key and value heads come together");
  if (c.has(1)) {
    const Shape& k = c.in(1).shape;
    rules::rank(c, 1, 4);
    rules::shape(c, 1, {q[0], k[1], q[2], q[3]});
    c.same_shape(2, 1);
    c.same_dtype(1, 0);
    c.same_dtype(2, 0);
    slots += 2 * k[1];
  }
  c.out(c.in(0).dtype, {q[0], q[2], slots * q[3]});
}

static Cost no_cost(const Program&, const Instr&) { return {}; }

static void grad_split(Grad& g) {
  if (!g.needs(0)) return;
  std::vector<ValueId> parts;
  for (size_t i = 0; i < g.instr().out.size(); ++i) {
    if (g.dout(i) == no_value) fail_internal("split_heads: a part without a gradient");
    parts.push_back(g.dout(i));
  }
  g.add(0, g.builder().emit1("join_heads", parts));
}

static void grad_join(Grad& g) {
  Attrs attrs;
  bool kv = g.in(1) != no_value;
  attrs.set("heads", g.builder().at(g.in(0)).shape[1]);
  attrs.set("kv_heads", kv ? g.builder().at(g.in(1)).shape[1] : int64_t(0));
  auto parts = g.builder().emit("split_heads", {g.dout(0)}, attrs);
  for (size_t i = 0; i < parts.size(); ++i)
    if (g.needs(i)) g.add(i, parts[i]);
}

const OpDef op_split_heads = {.name = "split_heads",
                              .help = "qkv[B,T,W] -> q[B,heads,T,D], k, v: views",
                              .op_class = OpClass::movement,
                              .infer = infer_split,
                              .cost = no_cost,
                              .grad = grad_split,
                              .cheap = true};

const OpDef op_join_heads = {.name = "join_heads",
                             .help = "q[B,heads,T,D], [k], [v] -> [B,T,W]: inverse of split_heads, a copy",
                             .op_class = OpClass::movement,
                             .infer = infer_join,
                             .cost = traffic,
                             .grad = grad_join,
                             .cheap = true};

}  // namespace crest
