// Rotary position embedding (Su et al. 2021) in the half-split layout of Hugging Face Llama.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 3);
  rules::contiguous(c);
  auto h = rules::heads(c, 0);
  c.check(h.head_dim % 2 == 0, "head_dim must be even");
  if (c.has(1)) rules::scalars(c, 1);
  if (c.has(2)) {
    rules::positions(c, 2, c.in(0).shape);
    c.check(!c.has(1), "takes scalars or positions");
  }
  c.check(rules::number(c, "theta") > 0, "attribute 'theta' must be positive");
  rules::flag(c, "inverse");
  if (c.attrs().has("factor")) {
    c.check(rules::number(c, "factor") > 0, "attribute 'factor' must be positive");
    double low = rules::number(c, "low_freq_factor"), high = rules::number(c, "high_freq_factor");
    c.check(low > 0 && high > low, "'high_freq_factor' must exceed 'low_freq_factor', both positive");
    c.check(rules::number(c, "original_context") > 0, "attribute 'original_context' must be positive");
  }
  c.out_like(0);
}

// The gradient of a rotation is the rotation back.
static void grad(Grad& g) {
  if (!g.needs(0)) return;
  Attrs attrs = g.attrs();
  attrs.set("inverse", g.attrs().integer("inverse", 0) == 0);
  std::vector<ValueId> in = {g.dout(0), g.in(1)};
  if (g.in(2) != no_value) in.push_back(g.in(2));
  g.add(0, g.builder().emit1("rope", std::move(in), attrs));
}

const OpDef op_rope = {
    .name = "rope",
    .help = "qkv[B,T,W], [scalars], [positions i32[B,T]] -> the same with query and key heads rotated by position",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .cost = elementwise_cost<3>,
    .grad = grad,
    .may_overlay = {{0, 0}},
    .cheap = true};

}  // namespace crest
