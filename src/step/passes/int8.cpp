// Setting --weights int8: in Programs that evaluate and sample, the matrices of linear layers
// (attention, MLP, head) are 8-bit integers with a scale for each output (core/int8.h). The other
// operand of each product keeps the recipe's precision.
//
//   y = linear(x, w, b)     ->  y = linear_int8(x, q, scale, b)                for a few rows of x
//                           ->  y = linear(x, dequantize(q, scale), b)         for more
//   y = embedding(ids, w)   ->  y = embedding_int8(ids, q, scale)              where the head is tied
//
// For a few rows (decoding), a product's time is the time to read the weights, so a kernel reads
// the 8-bit weights directly, if the device has one. For many rows, arithmetic takes the time and
// linear's kernels are best. A matrix exists in floats only during its use.
#include "passes/int8.h"

#include <map>

#include "core/error.h"
#include "core/int8.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class QuantizeWeights {
 public:
  QuantizeWeights(Program& program, const PassContext& context) : p_(program), context_(context), w_(program) {}

  void run() {
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
    for (auto& q : p_.params) other[q.value] = p_.at(q.value).shape.rank() != 2;
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
    Attrs dtype;
    dtype.set("dtype", name(p_.at(x).dtype));
    product = instr;
    product.in[in::linear::w] = w_.build(instr).emit1("dequantize", {w, scale}, dtype);
    w_.keep(product);
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

}  // namespace

void quantize_weights(Program& program, const PassContext& context) {
  if (context.setting("weights") != "int8") return;
  if (context.kind == ProgramKind::train || context.kind == ProgramKind::update)
    fail_usage(
        "weights of 8 bits cannot be trained", "--weights int8",
        "They are for crest sample, crest eval, crest bench --phase forward or decode, and crest plan --for sample "
        "or eval.");
  QuantizeWeights(program, context).run();
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
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}}})};
  return rows;
}

}  // namespace crest
