#include "backend/cpu/fused_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ops/index.h"
#include "program/op.h"

namespace crest::cpu {
namespace {

struct Known {
  std::string_view name;
  PointwiseStep PointwiseFunctions::*run;
  size_t inputs;
};
#define CREST_KNOW(op, inputs, outputs) {#op, &PointwiseFunctions::op, in::op::count},
constexpr Known known[] = {CREST_POINTWISE_OPS(CREST_KNOW)};
#undef CREST_KNOW

using Operand = FusedPlan::Operand;

// One compilation: values are renamed through casts, slots are reused after the last reader.
class Compiler {
 public:
  Compiler(const Program& body, const std::vector<const Instr*>& code, const std::vector<ValueId>& inputs,
           const std::vector<ValueId>& outputs)
      : body_(body), code_(code), inputs_(inputs), outputs_(outputs) {}

  FusedPlan run(std::string& why) {
    collect(why);
    if (!why.empty()) return {};
    for (ValueId v : inputs_) plan_.input_dtypes.push_back(v == no_value ? DType::f32 : body_.at(v).dtype);
    for (ValueId v : outputs_) plan_.output_dtypes.push_back(body_.at(v).dtype);
    find_last_uses();
    for (size_t i = 0; i < compute_.size(); ++i) emit_step(i);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (is_sum(outputs_[o])) continue;
      Operand from = place(root(outputs_[o]), int(compute_.size()));
      if (from.kind != Operand::output || from.index != int(o)) plan_.stores.push_back({int(o), from});
    }
    for (const Instr* i : sums_) {
      size_t o = size_t(std::find(outputs_.begin(), outputs_.end(), i->out[out::bias_grad::db]) - outputs_.begin());
      int acc = -1;
      if (i->in.size() > in::bias_grad::acc && i->in[in::bias_grad::acc] != no_value)
        acc = int(std::find(inputs_.begin(), inputs_.end(), i->in[in::bias_grad::acc]) - inputs_.begin());
      plan_.sums.push_back({int(o), acc, place(root(i->in[in::bias_grad::dy]), int(compute_.size()))});
    }
    // Slots of all tiles together fill about a third of a 48 KiB first-level cache: the rest is for
    // the streams.
    plan_.tile = std::clamp<int64_t>(4096 / std::max(plan_.slots, 1) / 64 * 64, 512, 4096);
    return std::move(plan_);
  }

 private:
  void collect(std::string& why) {
    for (const Instr* i : code_) {
      std::string_view op = i->op->name;
      if (op == "cast") {
        alias_[i->out[out::cast::y]] = root(i->in[in::cast::x]);
      } else if (op == "bias_grad") {
        sums_.push_back(i);
        if (std::find(outputs_.begin(), outputs_.end(), i->out[out::bias_grad::db]) == outputs_.end())
          why = "bias_grad inside a body must be one of its outputs";
        shape(i->in[in::bias_grad::dy]);
      } else {
        const Known* k = std::find_if(std::begin(known), std::end(known), [&](const Known& x) { return x.name == op; });
        if (k == std::end(known)) {
          why = fmt::format("operation {} is not one that the tile interpreter knows", op);
          return;
        }
        compute_.push_back({i, k});
        shape(i->out[0]);
      }
    }
    if (plan_.numel == 0 && !code_.empty()) shape(code_.front()->in[0]);
  }
  void shape(ValueId v) {
    plan_.numel = body_.at(v).numel();
    plan_.columns = std::max<int64_t>(body_.at(v).shape.back(), 1);
  }
  ValueId root(ValueId v) const {
    auto it = alias_.find(v);
    return it == alias_.end() ? v : it->second;
  }
  bool is_sum(ValueId v) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const Instr* i) { return i->out[out::bias_grad::db] == v; });
  }
  int input_index(ValueId v) const {
    auto it = std::find(inputs_.begin(), inputs_.end(), v);
    return it == inputs_.end() ? -1 : int(it - inputs_.begin());
  }

  void find_last_uses() {
    int end = int(compute_.size());
    for (int i = 0; i < end; ++i)
      for (ValueId v : compute_[size_t(i)].instr->in) last_[root(v)] = i;
    for (ValueId v : outputs_)
      if (!is_sum(v)) last_[root(v)] = end;
    for (const Instr* i : sums_) last_[root(i->in[in::bias_grad::dy])] = end;
  }

  int take_slot() {
    if (!free_.empty()) {
      int s = free_.back();
      free_.pop_back();
      return s;
    }
    return plan_.slots++;
  }

  // The place of a value when step `at` reads it; inserts the load of an input other than f32.
  Operand place(ValueId v, int at) {
    auto it = where_.find(v);
    if (it != where_.end()) return it->second;
    int input = input_index(v);
    // An f32 input passed on as an output is loaded
    // too: stores of other outputs may overlay it.
    Operand o{Operand::input, input};
    if (plan_.input_dtypes[size_t(input)] != DType::f32 || at == int(compute_.size())) {
      o = {Operand::slot, take_slot()};
      plan_.loads.push_back({input, o.index, at});
    }
    return where_[v] = o;
  }
  void release(ValueId v, int at) {
    auto it = where_.find(v);
    if (it != where_.end() && it->second.kind == Operand::slot && last_[v] == at && released_.insert({v, true}).second)
      free_.push_back(it->second.index);
  }

  void emit_step(size_t i) {
    auto [instr, k] = compute_[i];
    FusedPlan::Step s{};
    s.run = CREST_SIMD_PICK(pointwise_functions).*(k->run);
    s.value = instr->attrs.has("value") ? float(instr->attrs.number("value")) : 0;
    ValueId a = root(instr->in[0]), b = k->inputs == 2 ? root(instr->in[1]) : a;
    s.a = place(a, int(i));
    s.b = place(b, int(i));
    release(a, int(i)), release(b, int(i));
    ValueId out = instr->out[0];
    // Outputs may overlay inputs, so only the last step writes to memory at once: nothing is read
    // after it.
    auto o = std::find_if(outputs_.begin(), outputs_.end(), [&](ValueId v) { return root(v) == out; });
    bool direct =
        i + 1 == compute_.size() && o != outputs_.end() && body_.at(*o).dtype == DType::f32 && !passes_input();
    s.out = direct ? Operand{Operand::output, int(o - outputs_.begin())} : Operand{Operand::slot, take_slot()};
    where_[out] = s.out;
    plan_.steps.push_back(s);
    if (last_.find(out) == last_.end()) last_[out] = int(i);
    release(out, int(i));
  }
  // Whether something after the last step still reads an input.
  bool passes_input() const {
    auto reads = [&](ValueId v) { return input_index(root(v)) >= 0; };
    return std::any_of(outputs_.begin(), outputs_.end(), reads) ||
           std::any_of(sums_.begin(), sums_.end(), [&](const Instr* i) { return reads(i->in[in::bias_grad::dy]); });
  }

  struct Compute {
    const Instr* instr;
    const Known* op;
  };
  const Program& body_;
  const std::vector<const Instr*>& code_;
  const std::vector<ValueId>& inputs_;
  const std::vector<ValueId>& outputs_;
  std::vector<Compute> compute_;
  std::vector<const Instr*> sums_;
  std::unordered_map<ValueId, ValueId> alias_;
  std::unordered_map<ValueId, int> last_;
  std::unordered_map<ValueId, Operand> where_;
  std::unordered_map<ValueId, bool> released_;
  std::vector<int> free_;
  FusedPlan plan_;
};

}  // namespace

int64_t FusedPlan::chunks() const { return std::clamp<int64_t>(numel / columns / 16, 1, 64); }

FusedPlan compile_fused(const Program& body, const std::vector<const Instr*>& code, const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& outputs, std::string& why) {
  return Compiler(body, code, inputs, outputs).run(why);
}

}  // namespace crest::cpu
