// Optimizers with one element-wise instruction per parameter. Pass fusion joins them into one per
// group.
#include "passes/optimizers.h"

namespace crest {

static Attrs adam_attrs(const Update& u) {
  const Recipe& r = u.recipe;
  return u.attrs().set("beta1", r.beta1).set("beta2", r.beta2).set("eps", r.eps);
}

// AdamW (Loshchilov & Hutter 2019), with decay of matrices only.
static void emit_adamw(Update& u) {
  u.b.emit("adamw", {u.scalars, u.master(), u.state("m"), u.state("v"), u.gradient, u.copy}, adam_attrs(u));
}

// Weights and moments in bf16, without a master copy: 4 bytes of state instead of AdamW's 10.
static void emit_bf16(Update& u, std::string_view rounding) {
  std::vector<ValueId> in = {u.scalars, u.master(), u.state("m"), u.state("v"), u.gradient, no_value};
  Attrs a = adam_attrs(u);
  if (!rounding.empty()) a.set("rounding", rounding);
  if (rounding == "kahan")
    in.push_back(u.state("c"));
  else if (rounding == "stochastic")
    a.set("rng_id", (u.param.decay ? 0 : 1) + 2 * u.param.lr_group);  // one stream per group
  u.b.emit("adamw", in, a);
}
static void emit_adamw_bf16(Update& u) { emit_bf16(u, ""); }
static void emit_adamw_bf16_kahan(Update& u) { emit_bf16(u, "kahan"); }
static void emit_adamw_bf16_stochastic(Update& u) { emit_bf16(u, "stochastic"); }

static void emit_8bit(Update& u, std::string_view codes, std::string_view m, std::string_view v) {
  Attrs a = adam_attrs(u).set("block", u.b.program().properties.integer(state_block_property));
  if (!codes.empty()) a.set("codes", codes);
  u.b.emit("adamw_8bit",
           {u.scalars, u.master(), u.state(m), u.state("m_max"), u.state(v), u.state("v_max"), u.gradient, u.copy}, a);
}
static void emit_adamw_8bit(Update& u) { emit_8bit(u, "", "m", "v"); }
static void emit_adamw_fp8(Update& u) { emit_8bit(u, "e4m3", "m_e4m3", "v_e4m3"); }

static void emit_sgd(Update& u) {
  u.b.emit("sgd", {u.scalars, u.master(), u.state("m"), u.gradient, u.copy}, u.attrs().set("momentum", u.recipe.beta1));
}

static void emit_lion(Update& u) {
  u.b.emit("lion", {u.scalars, u.master(), u.state("m"), u.gradient, u.copy},
           u.attrs().set("beta1", u.recipe.beta1).set("beta2", u.recipe.beta2));
}

// 8-bit moments with a scale for each block. Names include the code, so a checkpoint with one code
// is never read as another.
static std::vector<StateRow> states_of_a_byte(const char* m, const char* v) {
  return {{m, Per::element, DType::u8}, {"m_max", Per::block}, {v, Per::element, DType::u8}, {"v_max", Per::block}};
}

std::vector<Optimizer> elementwise_optimizers() {
  const StateRow m = {"m"}, v = {"v"};
  const StateRow bf16_m = {"m", Per::element, DType::bf16}, bf16_v = {"v", Per::element, DType::bf16},
                 compensation = {"c", Per::element, DType::bf16};
  // Norms and biases, well below 1% of a model, stay in fp32.
  auto decayed = [](const Param& p) { return p.decay; };
  return {{"adamw", emit_adamw, {m, v}},
          {"adamw-bf16", emit_adamw_bf16, {bf16_m, bf16_v}, Master::none},
          {"adamw-bf16-kahan", emit_adamw_bf16_kahan, {bf16_m, bf16_v, compensation}, Master::none},
          {"adamw-bf16-stochastic", emit_adamw_bf16_stochastic, {bf16_m, bf16_v}, Master::none},
          {"adamw-8bit", emit_adamw_8bit, states_of_a_byte("m", "v"), Master::split, decayed},
          {"adamw-fp8", emit_adamw_fp8, states_of_a_byte("m_e4m3", "v_e4m3"), Master::split, decayed},
          {.name = "sgd", .emit = emit_sgd, .states = {m}, .rate = 100},
          {.name = "lion", .emit = emit_lion, .states = {m}, .rate = 0.2}};
}

}  // namespace crest
