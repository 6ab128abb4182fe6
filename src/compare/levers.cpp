#include "compare/levers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace crest {

namespace {

bool has(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}
bool has_role(const Cause& c, std::initializer_list<const char*> roles) {
  return std::any_of(roles.begin(), roles.end(), [&](const char* r) { return has(c.roles, r); });
}
bool differs(double a, double b) { return std::abs(a - b) > 0.005 * std::max(std::abs(a), std::abs(b)); }

// How many instructions of which operation a layer has.
bool other_instructions(const Cause& c) {
  if (!c.a.layers || !c.b.layers) return c.a.ops != c.b.ops;
  std::set<std::string> a, b;
  for (auto& op : c.a.ops) a.insert(op.substr(op.rfind(' ') + 1));
  for (auto& op : c.b.ops) b.insert(op.substr(op.rfind(' ') + 1));
  return a != b || c.a.instructions * c.b.layers != c.b.instructions * c.a.layers;
}
bool other_types(const Cause& c) { return c.a.arithmetic != c.b.arithmetic || c.a.types != c.b.types; }
bool other_work(const Cause& c) { return differs(c.a.flops, c.b.flops) || differs(c.a.bytes, c.b.bytes); }
bool other_kernels(const Cause& c) { return c.a.kernels != c.b.kernels; }
bool in_attention(const Cause& c) {
  return has_role(c, {"attn"}) || has(c.a.classes, "attention") != has(c.b.classes, "attention");
}
bool in_phase(const Cause& c, const char* phase) { return c.phase.find(phase) != std::string::npos; }

// What can have changed a group when that key differs. The first row that applies names the group's lever, the others
// stand beside it. Keys of `device` and `versions` differ when anything in these sections does.
constexpr struct {
  const char* key;
  bool (*explains)(const Cause&);
} table[] = {
    {"attention", in_attention},
    {"recompute", [](const Cause& c) { return in_phase(c, "recompute"); }},
    {"pad_vocab",
     [](const Cause& c) {
       return has_role(c, {"wte", "lm_head", "loss"});
     }},
    {"vocab",
     [](const Cause& c) {
       return has_role(c, {"wte", "lm_head", "loss"});
     }},
    {"dropout", [](const Cause& c) { return other_instructions(c) || in_attention(c); }},
    {"fusion", other_instructions},
    {"optimizer", [](const Cause& c) { return in_phase(c, "update"); }},
    {"clip", [](const Cause& c) { return in_phase(c, "update"); }},
    {"precision", other_types},
    {"policy", [](const Cause& c) { return other_types(c) || other_work(c) || other_instructions(c); }},
    {"grad_dtype", [](const Cause& c) { return other_types(c) || other_work(c); }},
    {"recompute", [](const Cause& c) { return in_phase(c, "backward") && (other_work(c) || other_instructions(c)); }},
    {"model", [](const Cause& c) { return other_work(c) || other_instructions(c); }},
    {"seq", other_work},
    {"batch", other_work},
    {"grad_accumulation", [](const Cause& c) { return c.a.calls != c.b.calls || other_work(c); }},
    {"data_parallel", [](const Cause& c) { return c.main_factor == Factor::communication || other_work(c); }},
    {"kernel", other_kernels},
    {"disable_pass", [](const Cause& c) { return other_instructions(c) || other_work(c) || other_kernels(c); }},
    {"deterministic", other_kernels},
    {"device", [](const Cause&) { return true; }},
    {"versions", [](const Cause& c) { return other_kernels(c) || c.main_factor == Factor::efficiency; }},
};

struct Change {
  std::string a, b;
};

std::map<std::string, Change> changes(const RunComparison& c) {
  std::map<std::string, Change> map;
  for (auto& d : c.differences) {
    if (d.section == "recipe") map[d.key] = {d.a, d.b};
    if (d.section == "device" || d.section == "versions") {
      Change& change = map[d.section];
      if (change.a.empty() || d.key == "name") change = {d.a, d.b};
    }
  }
  return map;
}

std::vector<std::string> levers_of(const Cause& c, const std::map<std::string, Change>& changed) {
  // The only difference is the reason, whatever it did.
  if (changed.size() == 1) return {changed.begin()->first};
  std::vector<std::string> keys;
  for (auto& row : table)
    if (changed.count(row.key) && row.explains(c) && !has(keys, row.key)) keys.push_back(row.key);
  return keys;
}

}  // namespace

void explain_by_levers(RunComparison& c) {
  auto changed = changes(c);
  std::map<std::string, LeverEffect> effects;
  for (auto& cause : c.causes) {
    cause.levers = levers_of(cause, changed);
    std::string key = cause.levers.empty() ? "" : cause.levers[0];
    LeverEffect& e = effects[key];
    e.lever = key;
    if (!key.empty()) e.a = changed[key].a, e.b = changed[key].b;
    e.ms += cause.ms, e.share += cause.share;
    e.groups += cause.ms != 0;
  }
  for (auto& [key, e] : effects)
    if (e.ms != 0) c.levers.push_back(e);
  std::stable_sort(c.levers.begin(), c.levers.end(), [](auto& x, auto& y) { return std::abs(x.ms) > std::abs(y.ms); });
}

}  // namespace crest
