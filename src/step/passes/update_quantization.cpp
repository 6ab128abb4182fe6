// Setting --fusion on with --fp8-weights update: the update kernel also writes the 8-bit weights,
// if the device has such a kernel. Runs after the passes that shard or cut the update. These make
// the weights whole only after the update, where a separate kernel quantizes them.
#include <algorithm>
#include <map>
#include <set>

#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "passes/joins.h"

namespace crest {

namespace {

class JoinUpdate : Joins {
 public:
  using Joins::Joins;

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (p_.code[i].op->flat) join(i);
    finish();
  }

 private:
  // The updated weights' readers: matrices of the group, and their quantizations.
  struct Quantizers {
    std::set<size_t> members, quantizers;  // in code order
  };

  Quantizers quantizers_of(size_t update) const {
    Quantizers found;
    auto add = [&](ValueId weights) {
      for (int c : consumers_[size_t(weights)])
        if (is(p_.code[size_t(c)], "quantize")) found.quantizers.insert(size_t(c));
    };
    for (ValueId v : p_.code[update].out) {
      add(v);
      for (int c : consumers_[size_t(v)])
        if (is(p_.code[size_t(c)], "member")) {
          const ValueId matrix = p_.code[size_t(c)].out[out::member::y];
          const size_t before = found.quantizers.size();
          add(matrix);
          if (found.quantizers.size() == before + consumers_[size_t(matrix)].size()) found.members.insert(size_t(c));
        }
    }
    return found;
  }

  // Whether a quantization's other inputs exist at the update, or come from another quantizer on
  // its way there.
  bool may_move(size_t update, size_t quantizer, const std::set<size_t>& moving) const {
    const Instr& instr = p_.code[quantizer];
    if (!alike(instr, p_.code[update])) return false;
    for (size_t k = in::quantize::x + 1; k < instr.in.size(); ++k) {
      const int made = producer_[size_t(instr.in[k])];
      const auto at = size_t(std::max(made, 0));
      if (made >= 0 && at > update && !(at < quantizer && moving.count(at))) return false;
    }
    return true;
  }

  void join(size_t i) {
    const Quantizers found = quantizers_of(i);
    if (found.quantizers.empty()) return;
    for (size_t q : found.quantizers)
      if (!may_move(i, q, found.quantizers)) return;
    Instr joined = joined_of(i, found);
    if (!has_kernel(joined)) return;
    p_.code[i] = std::move(joined);
    for (auto* moved : {&found.members, &found.quantizers})
      for (size_t k : *moved) gone_[k] = true;
    for (ValueId v : p_.code[i].out) producer_[size_t(v)] = int(i);
  }

  Instr joined_of(size_t update, const Quantizers& found) const {
    auto body = std::make_shared<Program>();
    body->name = "body";
    Builder b(*body);
    Instr joined = p_.code[update];
    joined.op = &op("fused_update");
    joined.attrs = {};
    joined.in.clear(), joined.out.clear();
    std::map<ValueId, ValueId> inside;  // Program's values -> body's values
    std::map<ValueId, ValueId> newest;  // outputs, by storage
    std::vector<ValueId> made;          // outputs, in order
    auto append = [&](Instr instr) {
      const std::vector<ValueId> outputs = instr.out;
      for (ValueId& v : instr.in) {
        if (v == no_value) continue;
        auto [it, added] = inside.emplace(v, no_value);
        if (added) {
          const Value& value = p_.at(v);
          it->second = b.declare(value.name, value.dtype, value.shape, Role::input, Lifetime::micro_step);
          body->inputs.push_back(it->second);
          joined.in.push_back(v);
        }
        v = it->second;
      }
      const std::vector<ValueId> out = b.append(std::move(instr));
      for (size_t o = 0; o < out.size(); ++o) inside[outputs[o]] = out[o];
      return outputs;
    };
    std::string origin;  // joined once
    auto take = [&](size_t k) {
      for (ValueId v : append(p_.code[k])) {
        made.push_back(v);
        newest[p_.at(v).layout.storage] = v;
      }
      origin += (origin.empty() ? "" : "+") + p_.code[k].origin.text();
    };
    take(update);
    // Keep views of matrices only if something else reads them.
    for (size_t q : found.quantizers)
      if (const int member = producer_[size_t(p_.code[q].in[in::quantize::x])];
          size_t(member) != update && !inside.count(p_.code[q].in[in::quantize::x]))
        append(p_.code[size_t(member)]);
    for (size_t q : found.quantizers) take(q);
    joined.origin = Origin::parse(origin);
    for (ValueId v : made)
      if (newest.at(p_.at(v).layout.storage) == v) {
        joined.out.push_back(v);
        body->outputs.push_back(inside.at(v));
      }
    joined.body = body;
    return joined;
  }
};

}  // namespace

void join_update_quantization(Program& program, const PassContext& context) {
  if (context.kernel_for && context.recipe.fusion == "on" && context.recipe.precision == "fp8" &&
      context.kind == ProgramKind::update)
    JoinUpdate(program, context).run();
}

}  // namespace crest
