// Interleaved qkv[B,T,W] seen as separate heads, and back.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer_split(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  auto h = rules::heads(c, in::split_heads::qkv, 0);
  int64_t width = c.in(in::split_heads::qkv).shape.back();
  Shape strides = {h.seq * width, h.head_dim, width, 1};
  c.out_view(in::split_heads::qkv, 0, {h.batch, h.heads, h.seq, h.head_dim}, strides);
  if (h.kv_heads == 0) return;
  Shape kv = {h.batch, h.kv_heads, h.seq, h.head_dim};
  c.out_view(in::split_heads::qkv, h.heads * h.head_dim, kv, strides);
  c.out_view(in::split_heads::qkv, (h.heads + h.kv_heads) * h.head_dim, kv, strides);
}

static void infer_join(Infer& c) {
  rules::inputs(c, 1, 3);
  rules::rank(c, in::join_heads::q, 4);
  rules::floating(c, in::join_heads::q);
  const Shape& q = c.in(in::join_heads::q).shape;
  int64_t slots = q[1];
  c.check(c.has(in::join_heads::k) == c.has(in::join_heads::v), "key and value heads come together");
  if (c.has(in::join_heads::k)) {
    const Shape& k = c.in(in::join_heads::k).shape;
    rules::rank(c, in::join_heads::k, 4);
    rules::shape(c, in::join_heads::k, {q[0], k[1], q[2], q[3]});
    c.same_shape(in::join_heads::v, in::join_heads::k);
    c.same_dtype(in::join_heads::k, in::join_heads::q);
    c.same_dtype(in::join_heads::v, in::join_heads::q);
    slots += 2 * k[1];
  }
  c.out(c.in(in::join_heads::q).dtype, {q[0], q[2], slots * q[3]});
}

static Cost no_cost(const Program&, const Instr&) { return {}; }

static void grad_split(Grad& g) {
  if (!g.needs(in::split_heads::qkv)) return;
  std::vector<ValueId> parts;
  for (size_t i = 0; i < g.instr().out.size(); ++i) {
    if (g.dout(i) == no_value) fail_internal("split_heads: a part without a gradient");
    parts.push_back(g.dout(i));
  }
  g.add(in::split_heads::qkv, g.builder().emit1("join_heads", parts));
}

static void grad_join(Grad& g) {
  Attrs attrs;
  bool kv = g.in(in::join_heads::k) != no_value;
  attrs.set("heads", g.builder().at(g.in(in::join_heads::q)).shape[1]);
  attrs.set("kv_heads", kv ? g.builder().at(g.in(in::join_heads::k)).shape[1] : int64_t(0));
  auto parts = g.builder().emit("split_heads", {g.dout(out::join_heads::qkv)}, attrs);
  for (size_t i = 0; i < parts.size(); ++i)
    if (g.needs(i)) g.add(i, parts[i]);
}

static const char* place_split(const Program& p, const Instr& i) {
  return i.attrs.integer("kv_heads") == 0 ? cut<"BTH -> BHTD; B T H">(p, i) : cut<"BTh -> BHTD; B T H">(p, i);
}
static const char* place_join(const Program& p, const Instr& i) {
  const bool alone = i.in.size() == 1 || i.in[in::join_heads::k] == no_value;
  return alone ? cut<"BHTD -> BTH; B T H">(p, i) : cut<"BHTD -> BTh; B T H">(p, i);
}

const OpDef op_split_heads = {.name = "split_heads",
                              .inputs = in::split_heads::names,
                              .outputs = out::split_heads::names,
                              .help = "qkv[B,T,W] -> q[B,heads,T,D], k, v: views",
                              .op_class = OpClass::movement,
                              .infer = infer_split,
                              .place = place_split,
                              .cost = no_cost,
                              .grad = grad_split,
                              .cheap = true};

const OpDef op_join_heads = {.name = "join_heads",
                             .inputs = in::join_heads::names,
                             .outputs = out::join_heads::names,
                             .help = "q[B,heads,T,D], [k], [v] -> [B,T,W]: inverse of split_heads, a copy",
                             .op_class = OpClass::movement,
                             .infer = infer_join,
                             .place = place_join,
                             .cost = traffic,
                             .grad = grad_join,
                             .cheap = true};

}  // namespace crest
