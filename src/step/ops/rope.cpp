// Rotary position embedding (Su et al. 2021) in the half-split layout of Hugging Face Llama.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 3);
  rules::contiguous(c);
  auto h = rules::heads(c, in::rope::qkv);
  if (c.attrs().has("rotary_dim")) {
    const int64_t rotated = rules::integer(c, "rotary_dim", 2);
    c.check(rotated % 2 == 0 && rotated <= h.head_dim, "attribute 'rotary_dim' must be even, at most head_dim");
  } else {
    c.check(h.head_dim % 2 == 0, "head_dim must be even");
  }
  if (c.has(in::rope::scalars)) rules::scalars(c, in::rope::scalars);
  if (c.has(in::rope::positions)) {
    rules::positions(c, in::rope::positions, c.in(in::rope::qkv).shape);
    c.check(!c.has(in::rope::scalars), "needs either scalars or positions");
    if (c.attrs().has("length")) rules::integer(c, "length", h.seq);
  }
  c.check(rules::number(c, "theta") > 0, "attribute 'theta' must be positive");
  rules::flag(c, "inverse");
  if (c.attrs().has("attention_factor"))
    c.check(rules::number(c, "attention_factor") > 0, "attribute 'attention_factor' must be positive");
  if (c.attrs().has("factor")) c.check(rules::number(c, "factor") > 0, "attribute 'factor' must be positive");
  if (c.attrs().has("first_pair")) {
    c.check(c.attrs().has("factor"), "attribute 'first_pair' needs 'factor'");
    c.check(rules::number(c, "first_pair") != rules::number(c, "last_pair"),
            "attributes 'first_pair' and 'last_pair' must differ");
  } else if (c.attrs().has("factor")) {
    double low = rules::number(c, "low_freq_factor"), high = rules::number(c, "high_freq_factor");
    c.check(low > 0 && high > low, "'high_freq_factor' must exceed 'low_freq_factor', both positive");
    c.check(rules::number(c, "original_context") > 0, "attribute 'original_context' must be positive");
  }
  c.out_like(in::rope::qkv);
}

// The gradient of a rotation is the inverse rotation, scaled alike.
static void grad(Grad& g) {
  if (!g.needs(in::rope::qkv)) return;
  Attrs attrs = g.attrs();
  attrs.set("inverse", g.attrs().integer("inverse", 0) == 0);
  std::vector<ValueId> in = {g.dout(out::rope::y), g.in(in::rope::scalars)};
  if (g.in(in::rope::positions) != no_value) in.push_back(g.in(in::rope::positions));
  g.add(in::rope::qkv, g.builder().emit1("rope", std::move(in), attrs));
}

// Without positions, a token's place is its row.
static const char* place(const Program& p, const Instr& i) {
  const bool given = i.in.size() > in::rope::positions && i.in[in::rope::positions] != no_value;
  return given ? cut<"BTh, -, BT -> BTh; B T H">(p, i) : cut<"BTh, - -> BTh; B H">(p, i);
}

const OpDef op_rope = {
    .name = "rope",
    .inputs = in::rope::names,
    .outputs = out::rope::names,
    .help =
        "qkv[B,T,W], [scalars], [positions i32[B,T]] -> the same with query and key heads rotated by position: all "
        "of a head, or its first rotary_dim elements",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .place = place,
    .cost = elementwise_cost<3>,
    .grad = grad,
    .may_overlay = {{out::rope::y, in::rope::qkv}},
    .cheap = true};

}  // namespace crest
