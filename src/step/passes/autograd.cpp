// Reverse-mode differentiation over instructions. Activation gradients are summed from the last
// consumer to the first. Weight gradients accumulate in place; the first contribution initializes
// them.
#include <fmt/format.h>

#include <unordered_map>

#include "core/error.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

DType gradient_dtype(const Program& p) {
  return p.properties.has("grad_dtype") ? parse_dtype(p.properties.text("grad_dtype")).value() : DType::f32;
}

class Autograd final : public Grad {
 public:
  explicit Autograd(Program& program)
      : program_(program), builder_(program), forward_(program.code.size()), grad_dtype_(gradient_dtype(program)) {}

  void run() {
    find_parameters();
    gradients_.assign(program_.values.size(), no_value);
    for (size_t i = forward_; i-- > 0;) differentiate(i);
    for (size_t q = 0; q < program_.params.size(); ++q) {
      if (program_.params[q].frozen) continue;
      auto& versions = versions_[q];
      if (versions.empty()) fail_internal("no gradient reaches parameter " + program_.params[q].name);
      for (ValueId v : versions) {
        program_.at(v).role = Role::gradient;
        program_.at(v).lifetime = Lifetime::step;
      }
      program_.at(versions.back()).name = "grad." + program_.params[q].name;
      program_.outputs.push_back(versions.back());
    }
  }

  Builder& builder() override { return builder_; }
  const Instr& instr() const override { return instr_; }
  ValueId dout(size_t i) const override { return gradient_of(instr_.out[i]); }
  bool needs(size_t i) const override {
    return i < instr_.in.size() && instr_.in[i] != no_value && needs_[size_t(instr_.in[i])];
  }
  ValueId acc(size_t i) const override {
    int q = slot(i);
    return versions_[size_t(q)].empty() ? no_value : versions_[size_t(q)].back();
  }
  void set(size_t i, ValueId gradient) override { versions_[size_t(slot(i))].push_back(gradient); }
  void add(size_t i, ValueId gradient) override {
    ValueId& g = gradients_[size_t(instr_.in[i])];
    g = g == no_value ? gradient : builder_.emit1("add", {g, gradient});
  }
  DType weight_grad_dtype() const override { return grad_dtype_; }

 private:
  // Finds the values that depend on parameters, and the parameters themselves and their casts.
  void find_parameters() {
    needs_.assign(program_.values.size(), false);
    parameter_.assign(program_.values.size(), -1);
    versions_.resize(program_.params.size());
    for (size_t q = 0; q < program_.params.size(); ++q) {
      needs_[size_t(program_.params[q].value)] = !program_.params[q].frozen;
      parameter_[size_t(program_.params[q].value)] = int(q);
    }
    std::unordered_map<std::string_view, int> by_name;
    for (size_t q = 0; q < program_.params.size(); ++q) by_name.emplace(program_.params[q].name, int(q));
    for (size_t v = 0; v < program_.values.size(); ++v) {  // an earlier micro step's casts: PARAMETER.DTYPE
      const Value& value = program_.values[v];
      if (value.role != Role::weight || parameter_[v] >= 0) continue;
      auto it = by_name.find(std::string_view(value.name).substr(0, value.name.rfind('.')));
      if (it != by_name.end()) parameter_[v] = it->second, needs_[v] = !program_.params[size_t(it->second)].frozen;
    }
    for (auto& instr : program_.code) {
      bool any = is(instr, "receive");  // another stage's parameters
      for (ValueId v : instr.in) any |= v != no_value && needs_[size_t(v)];
      for (ValueId v : instr.out) needs_[size_t(v)] = any && is_float(program_.at(v).dtype);
      if (is(instr, "cast") && parameter_[size_t(instr.in[in::cast::x])] >= 0)
        parameter_[size_t(instr.out[out::cast::y])] = parameter_[size_t(instr.in[in::cast::x])];
    }
  }

  int slot(size_t i) const {
    int q = parameter_[size_t(instr_.in[i])];
    if (q < 0) fail_internal(fmt::format("input {} of {} is not a parameter", i, instr_.op->name));
    return q;
  }
  ValueId gradient_of(ValueId v) const { return size_t(v) < gradients_.size() ? gradients_[size_t(v)] : no_value; }

  void differentiate(size_t i) {
    instr_ = program_.code[i];  // a copy: emitting reallocates the list
    if (is(instr_, "cast") && parameter_[size_t(instr_.in[in::cast::x])] >= 0)
      return;  // the gradient is the parameter's
    bool wanted = is(instr_, "cross_entropy") || is(instr_, "send");
    for (ValueId v : instr_.out) wanted |= gradient_of(v) != no_value;
    bool any = is(instr_, "receive");
    for (size_t k = 0; k < instr_.in.size(); ++k) any |= needs(k);
    if (!wanted || !any) return;
    if (!instr_.op->grad) fail_internal(fmt::format("operation {} has no gradient", instr_.op->name));
    builder_.origin = instr_.origin;
    builder_.phase = Phase::backward;
    builder_.stream = Stream::compute;
    size_t before = program_.code.size();
    instr_.op->grad(*this);
    // TF32 is a mode of the matrix units, not a dtype. The gradient's matmuls use it too.
    if (instr_.attrs.has("tf32"))
      for (size_t k = before; k < program_.code.size(); ++k)
        if (OpClass c = program_.code[k].op->op_class; c == OpClass::contraction || c == OpClass::attention)
          program_.code[k].attrs.set("tf32", 1);
  }

  Program& program_;
  Builder builder_;
  size_t forward_;
  DType grad_dtype_;
  Instr instr_;
  std::vector<bool> needs_;
  std::vector<int> parameter_;                  // per value: parameter index or -1
  std::vector<ValueId> gradients_;              // per forward value
  std::vector<std::vector<ValueId>> versions_;  // per parameter: its gradient after each contribution
};

}  // namespace

void autograd(Program& program, const PassContext& context) {
  if (context.kind == ProgramKind::train) Autograd(program).run();
  if (context.kind == ProgramKind::update) {
    Builder b(program);
    for (auto& q : program.params) {
      if (q.frozen) continue;
      const ValueId gradient = b.declare("grad." + q.name, gradient_dtype(program), program.at(q.value).shape,
                                         Role::gradient, Lifetime::step);
      program.at(gradient).placement = program.at(q.value).placement;
    }
  }
}

}  // namespace crest
