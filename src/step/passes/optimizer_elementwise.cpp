// Optimizers with one element-wise instruction per parameter. The pass fusion makes one per group
// of them.
#include "passes/optimizers.h"

namespace crest {

static Attrs adam_attrs(const Update& u) {
  const Recipe& r = u.recipe;
  return Attrs().set("beta1", r.beta1).set("beta2", r.beta2).set("eps", r.eps).set("weight_decay", u.decay());
}

// AdamW (Loshchilov & Hutter 2019), decay on matrices only.
void emit_adamw(Update& u) {
  ValueId master = u.elementwise_master(), m = u.state("m"), v = u.state("v");
  u.b.emit("adamw", {u.scalars, master, m, v, u.gradient, u.copy}, adam_attrs(u));
}

// Weights and moments in bf16, without a master copy: 4 bytes of state instead of AdamW's 10.
static void emit_bf16(Update& u, std::string_view rounding) {
  ValueId m = u.state("m", DType::bf16, u.shape()), v = u.state("v", DType::bf16, u.shape());
  std::vector<ValueId> in = {u.scalars, u.param.value, m, v, u.gradient, no_value};
  Attrs a = adam_attrs(u);
  if (!rounding.empty()) a.set("rounding", rounding);
  if (rounding == "kahan")
    in.push_back(u.state("c", DType::bf16, u.shape()));
  else if (rounding == "stochastic")
    a.set("rng_id", u.param.decay ? 0 : 1);  // one stream per group
  u.b.emit("adamw", in, a);
}
static void emit_adamw_bf16(Update& u) { emit_bf16(u, ""); }
static void emit_adamw_bf16_kahan(Update& u) { emit_bf16(u, "kahan"); }
static void emit_adamw_bf16_stochastic(Update& u) { emit_bf16(u, "stochastic"); }

// Matrices in 8 bits; the rest (norms, biases: well below 1% of a model) in fp32.
static void emit_8bit(Update& u, std::string_view codes) {
  if (!u.param.decay) return emit_adamw(u);
  int64_t block = u.b.program().properties.integer("state_block"), blocks = (u.shape().numel() + block - 1) / block;
  ValueId master = u.elementwise_master();
  // Names tell the codes, so that a checkpoint of one kind is not read as the other.
  std::string kind = codes.empty() ? "" : "_" + std::string(codes);
  ValueId m = u.state("m" + kind, DType::u8, u.shape()), m_max = u.state("m_max", DType::f32, {blocks});
  ValueId v = u.state("v" + kind, DType::u8, u.shape()), v_max = u.state("v_max", DType::f32, {blocks});
  Attrs a = adam_attrs(u).set("block", block);
  if (!codes.empty()) a.set("codes", codes);
  u.b.emit("adamw_8bit", {u.scalars, master, m, m_max, v, v_max, u.gradient, u.copy}, a);
}
static void emit_adamw_8bit(Update& u) { emit_8bit(u, ""); }
static void emit_adamw_fp8(Update& u) { emit_8bit(u, "e4m3"); }

static void emit_sgd(Update& u) {
  ValueId master = u.elementwise_master(), m = u.state("m");
  u.b.emit("sgd", {u.scalars, master, m, u.gradient, u.copy},
           Attrs().set("momentum", u.recipe.beta1).set("weight_decay", u.decay()));
}

static void emit_lion(Update& u) {
  ValueId master = u.elementwise_master(), m = u.state("m");
  u.b.emit("lion", {u.scalars, master, m, u.gradient, u.copy},
           Attrs().set("beta1", u.recipe.beta1).set("beta2", u.recipe.beta2).set("weight_decay", u.decay()));
}

std::vector<Optimizer> elementwise_optimizers() {
  return {{"adamw", emit_adamw},
          {"adamw-bf16", emit_adamw_bf16, true},
          {"adamw-bf16-kahan", emit_adamw_bf16_kahan, true},
          {"adamw-bf16-stochastic", emit_adamw_bf16_stochastic, true},
          {"adamw-8bit", emit_adamw_8bit, false, true},
          {"adamw-fp8", emit_adamw_fp8, false, true},
          {"sgd", emit_sgd, false, false, 100},
          {"lion", emit_lion, false, false, 0.2}};
}

}  // namespace crest
