// Setting --attention: naive stores the T x T matrices, flash does not.
#include "ops/index.h"
#include "passes/joins.h"
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
    auto qkv = b.emit("split_heads", {w.now(instr.in[in::attention::qkv])}, heads);
    at("scores");
    ValueId s = b.emit1("matmul", {qkv[out::split_heads::q], qkv[out::split_heads::k]}, Attrs().set("transpose_b", 1));
    at("scale");
    s = b.emit1("scale", {s}, Attrs().set("value", instr.attrs.number("scale")));
    if (instr.attrs.integer("causal")) {
      at("mask");
      bool documents = instr.in.size() > in::attention::positions;
      Attrs mask;
      if (instr.attrs.has("window")) mask.set("window", instr.attrs.integer("window"));
      s = b.emit1("causal_mask", documents ? std::vector{s, w.now(instr.in[in::attention::positions])} : std::vector{s},
                  mask);
    }
    at("softmax");
    ValueId p = b.emit1("softmax", {s});
    if (instr.attrs.number("p", 0) > 0) {
      at("dropout");
      Attrs a;
      take_dropout(a, instr.attrs);
      p = b.emit1("dropout", {p, w.now(instr.in[in::attention::scalars])}, a);
    }
    at("values");
    ValueId o = b.emit1("matmul", {p, qkv[out::split_heads::v]});
    at("join");
    w.replace(instr.out[out::attention::o], b.emit1("join_heads", {o}));
  }
  w.finish();
}

const std::vector<Setting>& attention_settings() {
  static const std::vector<Setting> rows = {
      setting<&Recipe::attention>({.name = "attention",
                                   .group = "Precision and memory",
                                   .help = "attention as one operation without a T x T matrix (flash), or step by step "
                                           "(naive)",
                                   .choices = {"flash", "naive"},
                                   .common = true,
                                   .effects = {{Effect::work, Effect::attention}},
                                   .smaller = {"flash"}})};
  return rows;
}

}  // namespace crest
