// Setting --weights int8: in Programs that evaluate and sample, the matrices of linear layers
// (attention, MLP, head) are 8-bit integers with a scale for each output (core/int8.h). The other
// operand of each product keeps the recipe's precision.
//
//   y = linear(x, w, b)     ->  y = linear_int8(x, q, scale, b)                for a few rows of x
//                           ->  y = linear(x, dequantize(q, scale), b)         for more
//   y = embedding(ids, w)   ->  y = embedding_int8(ids, q, scale)              where the head is tied
//
// Setting --base-weights: the form of the frozen matrices of a model with adapters, in all
// Programs. int8: as above. Each product of the backward half dequantizes its matrix again:
//
//   dx = linear_dx(dy, w)   ->  dx = linear_dx(dy, dequantize(q, scale))
//
// bf16: matrices are 16-bit, and products in fp32 convert them when they use them.
//
// For a few rows (decoding), a product's time is the time to read the weights, so a kernel reads
// the 8-bit weights directly, if the device has one. For many rows, arithmetic takes the time and
// linear's kernels are best. A matrix exists in floats only during its use.
#include "passes/int8.h"

#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "core/int8.h"
#include "model/parameters.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// A matrix of a linear layer, or an embedding that is one.
bool is_linear(const Param& q, bool tied) {
  return q.shape.rank() == 2 &&
         (q.name.starts_with("h.") || q.name == "lm_head.weight" || (tied && q.name == "wte.weight"));
}

class QuantizeWeights {
 public:
  QuantizeWeights(Program& program, const PassContext& context) : p_(program), context_(context), w_(program) {}

  // base: the frozen matrices only. Programs without a forward pass have the same ones.
  void run(bool base) {
    if (base)
      frozen_matrices();
    else
      find_weights();
    Builder b(p_);
    for (auto& [weight, scale] : scales_) {
      Value& v = p_.at(weight);
      v.dtype = DType::i8;
      const std::string name = v.name + int8_scale;
      const Shape rows = {v.shape[0]};
      scale = b.declare(name, DType::f32, rows, Role::weight, Lifetime::persistent);
    }
    for (const Instr& instr : w_.old) {
      if (is(instr, "cast") && quantized(instr.in[in::cast::x]))
        continue;  // no reader is left
      else if (is(instr, "linear") && quantized(weight_of(instr.in[in::linear::w])))
        linear(instr);
      else if (is(instr, "linear_dx") && quantized(weight_of(instr.in[in::linear_dx::w])))
        input_gradient(instr);
      else if (is(instr, "embedding") && quantized(weight_of(instr.in[in::embedding::table])))
        embedding(instr);
      else
        w_.keep(instr);
    }
    w_.finish();
    p_.properties.set(int8_weights_property, int64_t(scales_.size()));
  }

 private:
  // Finds matrices used only by linear layers and row lookups.
  void find_weights() {
    std::map<ValueId, bool> other;  // by weight: whether other instructions read it
    for (auto& q : p_.params) other[q.value] = p_.at(q.value).shape.rank() != 2 || is_adapter(q);
    for (const Instr& instr : w_.old)
      if (is(instr, "cast") && other.count(instr.in[in::cast::x]) && p_.at(instr.out[0]).role == Role::weight)
        copies_[instr.out[out::cast::y]] = instr.in[in::cast::x];
    std::map<ValueId, bool> multiplied;
    for (const Instr& instr : w_.old)
      for (size_t i = 0; i < instr.in.size(); ++i) {
        if (instr.in[i] == no_value) continue;
        ValueId w = weight_of(instr.in[i]);
        auto it = other.find(w);
        if (it == other.end() || (is(instr, "cast") && copies_.count(instr.out[0]))) continue;
        bool product = is(instr, "linear") && i == in::linear::w;
        multiplied[w] |= product;
        it->second |= !product && !(is(instr, "embedding") && i == in::embedding::table);
      }
    for (auto& [w, product] : multiplied)
      if (product && !other.at(w)) scales_[w] = no_value;
  }

  void frozen_matrices() {
    for (auto& q : p_.params)
      if (q.frozen && is_linear(q, context_.recipe.model.tied)) scales_[q.value] = no_value;
  }

  // The parameter behind a value: itself, or the source of a cast (--policy autocast).
  ValueId weight_of(ValueId v) const {
    auto it = copies_.find(v);
    return it == copies_.end() ? v : it->second;
  }
  bool quantized(ValueId weight) const { return scales_.count(weight) > 0; }

  void linear(const Instr& instr) {
    const ValueId x = instr.in[in::linear::x], w = weight_of(instr.in[in::linear::w]), scale = scales_.at(w);
    Instr product = instr;
    product.op = &op("linear_int8");
    product.in = {x, w, scale, instr.in.size() > in::linear::b ? instr.in[in::linear::b] : no_value};
    product.attrs = Attrs();
    if (!context_.kernel_for || !context_.kernel_for(p_, product).empty()) return w_.keep(product);
    product = instr;
    product.in[in::linear::w] = dequantized(instr, w, x);
    w_.keep(product);
  }

  void input_gradient(const Instr& instr) {
    Instr product = instr;
    product.in[in::linear_dx::w] = dequantized(instr, instr.in[in::linear_dx::w], instr.in[in::linear_dx::dy]);
    w_.keep(product);
  }

  ValueId dequantized(const Instr& user, ValueId w, ValueId like) {
    return w_.build(user).emit1("dequantize", {w, scales_.at(w)}, Attrs().set("dtype", name(p_.at(like).dtype)));
  }

  void embedding(const Instr& instr) {
    const ValueId w = weight_of(instr.in[in::embedding::table]);
    Instr rows = instr;
    rows.op = &op("embedding_int8");
    rows.in = {instr.in[in::embedding::ids], w, scales_.at(w)};
    rows.attrs = Attrs();
    rows.attrs.set("dtype", name(p_.at(instr.out[out::embedding::y]).dtype));
    w_.keep(rows);
  }

  Program& p_;
  const PassContext& context_;
  Rewriter w_;
  std::map<ValueId, ValueId> copies_;  // weight by its cast
  std::map<ValueId, ValueId> scales_;  // by quantized weight
};

// Frozen fp32 matrices become bf16.
void round_weights(Program& p) {
  std::map<ValueId, DType> rounded;  // with the dtype of their products
  for (auto& q : p.params)
    if (q.frozen && (q.name == "wte.weight" || is_linear(q, false)) && p.at(q.value).dtype == DType::f32) {
      rounded[q.value] = p.at(q.value).dtype;
      p.at(q.value).dtype = DType::bf16;
    }
  if (rounded.empty()) return;
  Rewriter w(p);
  for (Instr instr : w.old) {
    auto cast = [&](ValueId v) { return w.build(instr).emit1("cast", {v}, Attrs().set("dtype", name(DType::f32))); };
    if (is(instr, "embedding") && rounded.count(instr.in[in::embedding::table])) {
      // The rows instead of the table.
      const ValueId rows = w.build(instr).emit1("embedding", instr.in, instr.attrs), y = instr.out[out::embedding::y];
      w.replace(y, cast(rows));
      continue;
    }
    for (ValueId& v : instr.in)
      if (v != no_value && rounded.count(v)) v = cast(v);
    w.keep(instr);
  }
  w.finish();
}

void set_base_weights(Program& program, const PassContext& context) {
  const std::string base = context.setting("base-weights");
  if (base == "auto") return;
  const Recipe& r = context.recipe;
  if (r.model.lora.rank == 0)
    fail_usage("only the frozen weights of a model with adapters have a form of their own", "--base-weights",
               "Add --lora RANK, or leave it out.");
  if (base == "fp32" && weight_dtype(r) != DType::f32)
    fail_usage(fmt::format("the weights of --precision {} --policy {} are 16-bit", r.precision, r.policy),
               "--base-weights", "Use --precision fp32, or --policy autocast.");
  if (base == "fp32") return;
  if (r.policy == "autocast" || r.precision == "fp8")
    fail_usage(fmt::format("--base-weights {} does not work with {}", base,
                           r.precision == "fp8" ? "--precision fp8" : "--policy autocast"),
               "--base-weights",
               r.precision == "fp8" ? "Leave it out: the base is bf16." : "Use --policy pure, or leave it out.");
  if (base == "bf16") return round_weights(program);
  QuantizeWeights(program, context).run(true);
}

}  // namespace

void quantize_weights(Program& program, const PassContext& context) {
  set_base_weights(program, context);
  if (context.setting("weights") != "int8" || context.setting("base-weights") == "int8") return;
  if (context.kind == ProgramKind::train || context.kind == ProgramKind::update)
    fail_usage(
        "weights of 8 bits cannot be trained", "--weights int8",
        "They are for crest sample, crest eval, crest bench --phase forward or decode, and crest plan --for sample "
        "or eval.");
  QuantizeWeights(program, context).run(false);
}

const std::vector<Setting>& int8_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "weights",
                    .group = "Precision and memory",
                    .help = "matrices of linear layers in evaluation and sampling: in the model's precision "
                            "(float), or 8-bit integers with a scale for each output (int8)",
                    .default_value = "float",
                    .choices = {"float", "int8"},
                    .newer = true,
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}}}),
      pass_setting({.name = "base-weights",
                    .group = "Precision and memory",
                    .help =
                        "with --lora: the frozen matrices, as --precision and --policy say (auto), in fp32, in bf16, "
                        "or as 8-bit integers with a scale for each output (int8)",
                    .default_value = "auto",
                    .choices = {"auto", "fp32", "bf16", "int8"},
                    .newer = true,
                    .resume = OnResume::refuses,
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
                    .smaller = {"bf16", "int8"}})};
  return rows;
}

}  // namespace crest
