// Lever --attention: naive writes the T x T matrices that flash never stores.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void decompose_attention(Program& program, const PassContext& context) {
  if (context.recipe.attention != "naive") return;
  Rewriter w(program);
  for (auto& instr : w.old) {
    if (!is(instr, "attention")) {
      w.keep(instr);
      continue;
    }
    Builder& b = w.build(instr);
    Origin scope = instr.origin;
    std::string base = scope.text();
    auto at = [&](const char* part) { b.origin = Origin(base + "." + part); };
    Attrs heads;
    heads.set("heads", instr.attrs.integer("heads")).set("kv_heads", instr.attrs.integer("kv_heads"));
    at("heads");
    auto qkv = b.emit("split_heads", {w.now(instr.in[0])}, heads);
    at("scores");
    ValueId s = b.emit1("matmul", {qkv[0], qkv[1]}, Attrs().set("transpose_b", 1));
    at("scale");
    s = b.emit1("scale", {s}, Attrs().set("value", instr.attrs.number("scale")));
    if (instr.attrs.integer("causal")) {
      at("mask");
      bool documents = instr.in.size() > 2;
      s = b.emit1("causal_mask", documents ? std::vector{s, w.now(instr.in[2])} : std::vector{s});
    }
    at("softmax");
    ValueId p = b.emit1("softmax", {s});
    if (instr.attrs.number("p", 0) > 0) {
      at("dropout");
      Attrs a;
      a.set("p", instr.attrs.number("p")).set("rng_id", instr.attrs.integer("rng_id"));
      p = b.emit1("dropout", {p, w.now(instr.in[1])}, a);
    }
    at("values");
    ValueId o = b.emit1("matmul", {p, qkv[2]});
    at("join");
    w.replace(instr.out[0], b.emit1("join_heads", {o}));
  }
  w.finish();
}

}  // namespace crest
