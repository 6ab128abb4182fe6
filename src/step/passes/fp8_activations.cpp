// Setting --fp8-activations e4m3: the gradient of an activation function (GELU, SwiGLU) reads the
// output of an fp8 linear layer. Crest keeps this output in 8 bits between forward and backward
// half:
//
//   h = linear_fp8(..)     ->  h = linear_fp8(..); q, scale = quantize_rows(h)
//   dh = gelu_grad(da, h)  ->  dh = gelu_grad(da, dequantize(q, scale))
//
// Runs after pass recompute. That one repeats the activation function itself from kept values.
#include <map>

#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class KeepInEightBits {
 public:
  explicit KeepInEightBits(Program& program) : p_(program), w_(program) {}

  void run() {
    find_kept();
    for (const Instr& instr : w_.old) {
      if (instr.phase == Phase::forward) {
        w_.keep(instr);
        for (ValueId v : instr.out)
          if (kept_.count(v)) kept_[v] = w_.build(instr).emit("quantize_rows", {v}, {});
        continue;
      }
      Instr changed = instr;
      for (ValueId& v : changed.in)
        if (kept_.count(v)) v = floats(instr, v);
      w_.keep(std::move(changed));
    }
    w_.finish();
  }

 private:
  // Finds 16-bit results of fp8 linear layers, read in the backward half by pointwise instructions
  // only.
  void find_kept() {
    for (const Instr& instr : w_.old)
      if (instr.phase == Phase::forward && is(instr, "linear_fp8") && is_half(p_.at(instr.out[0]).dtype))
        kept_[instr.out[0]];
    std::map<ValueId, bool> read;
    for (const Instr& instr : w_.old)
      if (instr.phase != Phase::forward)
        for (ValueId v : instr.in)
          if (kept_.count(v)) {
            auto [it, first] = read.emplace(v, true);
            it->second &= instr.op->pointwise;
          }
    std::erase_if(kept_, [&](auto& k) { return !read.count(k.first) || !read.at(k.first); });
  }

  ValueId floats(const Instr& user, ValueId v) {
    auto [it, first] = again_.emplace(v, no_value);
    if (first) {
      const std::vector<ValueId>& made = kept_.at(v);
      it->second = w_.build(user).emit1("dequantize", {made[out::quantize_rows::q], made[out::quantize_rows::scale]},
                                        Attrs().set("dtype", name(p_.at(v).dtype)));
    }
    return it->second;
  }

  Program& p_;
  Rewriter w_;
  std::map<ValueId, std::vector<ValueId>> kept_;  // q and scale, after they are made
  std::map<ValueId, ValueId> again_;
};

}  // namespace

void keep_activations(Program& program, const PassContext& context) {
  if (context.recipe.precision == "fp8" && context.kind == ProgramKind::train &&
      context.setting("fp8-activations") == "e4m3")
    KeepInEightBits(program).run();
}

const std::vector<Setting>& fp8_activations_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "fp8-activations",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: format of the activations kept for the gradients of GELU and "
                            "SwiGLU: bf16, or 8 bits with a scale for each token (e4m3). e4m3 saves 1 byte per "
                            "value, with coarser gradients and more traffic",
                    .default_value = "bf16",
                    .choices = {"bf16", "e4m3"},
                    .newer = true,
                    .effects = {{Effect::all, Effect::instructions}}})};
  return rows;
}

}  // namespace crest
