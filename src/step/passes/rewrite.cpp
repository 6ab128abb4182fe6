#include "passes/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/error.h"

namespace crest {

Rewriter::Rewriter(Program& program) : old(std::move(program.code)), program_(program), builder_(program) {
  program_.code.clear();
  program_.code.reserve(old.size() + old.size() / 2);
  map_.resize(program.values.size());
  for (size_t v = 0; v < map_.size(); ++v) map_[v] = ValueId(v);
}

std::vector<ValueId> Rewriter::now(const std::vector<ValueId>& v) const {
  std::vector<ValueId> r;
  r.reserve(v.size());
  for (ValueId x : v) r.push_back(now(x));
  return r;
}

void Rewriter::replace(ValueId old_value, ValueId by) { map_[size_t(old_value)] = by; }

Builder& Rewriter::build(const Instr& like) {
  builder_.origin = like.origin, builder_.phase = like.phase, builder_.stream = like.stream;
  return builder_;
}

void Rewriter::keep(Instr instr) {
  program_.code.push_back(std::move(instr));
  for (ValueId& v : program_.code.back().in) v = now(v);
}

// gone: versions without an instruction. They no longer extend a storage's lifetime.
static void drop_values(Program& p, const std::vector<bool>& gone) {
  std::vector<bool> used(p.values.size(), false);
  auto use = [&](ValueId v) {
    if (v == no_value) return;
    used[size_t(v)] = true;
    used[size_t(p.at(v).layout.storage)] = true;
  };
  for (auto& instr : p.code) {
    for (ValueId v : instr.in) use(v);
    for (ValueId v : instr.out) use(v);
  }
  for (auto& q : p.params) use(q.value);
  for (ValueId v : p.inputs) use(v);
  for (ValueId v : p.outputs) use(v);
  for (size_t v = 0; v < p.values.size(); ++v)
    if (p.values[v].lifetime != Lifetime::micro_step && !gone[v]) use(ValueId(v));

  if (std::find(used.begin(), used.end(), false) == used.end()) return;
  std::vector<ValueId> renumbered(p.values.size(), no_value);
  size_t kept = 0;
  for (size_t v = 0; v < p.values.size(); ++v)
    if (used[v]) {
      renumbered[v] = ValueId(kept);
      if (kept != v) p.values[kept] = std::move(p.values[v]);
      ++kept;
    }
  p.values.erase(p.values.begin() + ptrdiff_t(kept), p.values.end());
  auto renumber = [&](ValueId& v) {
    if (v != no_value) v = renumbered[size_t(v)];
  };
  for (auto& value : p.values) renumber(value.layout.storage);
  for (auto& instr : p.code) {
    for (ValueId& v : instr.in) renumber(v);
    for (ValueId& v : instr.out) renumber(v);
  }
  for (auto& q : p.params) renumber(q.value);
  for (ValueId& v : p.inputs) renumber(v);
  for (ValueId& v : p.outputs) renumber(v);
}

void drop_unused_values(Program& p) { drop_values(p, std::vector<bool>(p.values.size(), false)); }

void Rewriter::finish() {
  for (ValueId& v : program_.outputs) v = now(v);
  std::vector<int> producers = program_.producers();
  std::vector<bool> gone(program_.values.size(), false);
  for (const Instr& instr : old)
    for (ValueId v : instr.out) gone[size_t(v)] = producers[size_t(v)] < 0;
  drop_values(program_, gone);
}

ValueId latest(const Program& p, ValueId v) {
  ValueId newest = v;
  for (auto& instr : p.code)
    for (ValueId o : instr.out)
      if (p.at(o).layout.storage == p.at(v).layout.storage) newest = o;
  return newest;
}

void scale_loss(Program& p, double factor) {
  for (auto& instr : p.code)
    if (instr.op->op_class == OpClass::loss && instr.attrs.has("scale"))
      instr.attrs.set("scale", instr.attrs.number("scale") * factor);
}

bool is(const Instr& instr, std::string_view op_name) { return op_name == instr.op->name; }

std::vector<ValueId> parameter_gradients(const Program& p) {
  std::unordered_map<std::string_view, ValueId> gradients;
  for (size_t v = 0; v < p.values.size(); ++v)
    if (p.values[v].role == Role::gradient) gradients.emplace(p.values[v].name, ValueId(v));
  std::vector<ValueId> result;
  for (auto& q : p.params) {
    auto it = gradients.find("grad." + q.name);
    result.push_back(it == gradients.end() ? no_value : it->second);
  }
  return result;
}

std::vector<ValueId> required_gradients(const Program& p, const char* pass) {
  std::vector<ValueId> gradients = parameter_gradients(p);
  for (size_t q = 0; q < gradients.size(); ++q)
    if (gradients[q] == no_value && !p.params[q].frozen)
      fail_usage(fmt::format("the pass {} needs the gradient of {}, but no pass creates it", pass, p.params[q].name),
                 "--disable-pass", fmt::format("Leave autograd on, or disable {} too.", pass));
  return gradients;
}

}  // namespace crest
