// Setting --fusion off: activations become pointwise operations, as in an eager framework.
#include <cmath>

#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

// gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016, tanh form).
static ValueId decomposed_gelu(Builder& b, ValueId x) {
  auto value = [](double v) { return Attrs().set("value", v); };
  ValueId x3 = b.emit1("mul", {b.emit1("mul", {x, x}), x});
  ValueId inner = b.emit1("add", {x, b.emit1("scale", {x3}, value(0.044715))});
  ValueId t = b.emit1("tanh", {b.emit1("scale", {inner}, value(std::sqrt(2 / M_PI)))});
  return b.emit1("mul", {b.emit1("scale", {x}, value(0.5)), b.emit1("add_scalar", {t}, value(1))});
}

void decompose_pointwise(Program& program, const PassContext& context) {
  if (context.recipe.fusion != "off") return;
  Rewriter w(program);
  for (auto& instr : w.old)
    if (is(instr, "gelu"))
      w.replace(instr.out[out::gelu::y], decomposed_gelu(w.build(instr), w.now(instr.in[in::gelu::x])));
    else
      w.keep(instr);
  w.finish();
}

}  // namespace crest
