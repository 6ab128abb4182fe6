#include "compare/levers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/sentences.h"

namespace crest {

namespace {

bool has(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}
bool has_role(const Cause& c, std::initializer_list<const char*> roles) {
  return std::any_of(roles.begin(), roles.end(), [&](const char* r) { return has(c.roles, r); });
}
bool differs(double a, double b) { return std::abs(a - b) > 0.005 * std::max(std::abs(a), std::abs(b)); }

bool other_instructions(const Cause& c) { return !same_instructions(c); }
bool other_types(const Cause& c) { return c.a.arithmetic != c.b.arithmetic || c.a.types != c.b.types; }
bool other_work(const Cause& c) { return differs(c.a.flops, c.b.flops) || differs(c.a.bytes, c.b.bytes); }
bool other_kernels(const Cause& c) { return c.a.kernels != c.b.kernels; }
bool in_attention(const Cause& c) {
  return has_role(c, {"attn"}) || has(c.a.classes, "attention") != has(c.b.classes, "attention");
}
bool in_phase(const Cause& c, const char* phase) { return c.phase.find(phase) != std::string::npos; }

constexpr unsigned bit(Factor f) { return 1u << unsigned(f); }
constexpr unsigned work = bit(Factor::flops) | bit(Factor::bytes) | bit(Factor::efficiency) | bit(Factor::unsplit);
constexpr unsigned rate = bit(Factor::rate);
constexpr unsigned all = ~0u;

// What can have changed a group when that key of the recipe differs, and through which factors. The first row that
// applies to a factor of a group takes that part of its time. Keys of `device` and `versions` differ when anything in
// these sections does.
constexpr struct {
  const char* key;
  unsigned factors;
  bool (*explains)(const Cause&);
} table[] = {
    {"precision", rate, other_types},
    {"policy", rate, other_types},
    {"device", rate | bit(Factor::bandwidth) | bit(Factor::clocks), [](const Cause&) { return true; }},
    {"data_parallel", bit(Factor::communication), [](const Cause&) { return true; }},
    {"attention", work, in_attention},
    {"recompute", work, [](const Cause& c) { return in_phase(c, "recompute"); }},
    {"pad_vocab", work,
     [](const Cause& c) {
       return has_role(c, {"wte", "lm_head", "loss"});
     }},
    {"vocab", work,
     [](const Cause& c) {
       return has_role(c, {"wte", "lm_head", "loss"});
     }},
    {"loss_chunk", work,
     [](const Cause& c) {
       return has_role(c, {"lm_head", "loss"});
     }},
    {"optimizer", all, [](const Cause& c) { return in_phase(c, "update"); }},
    {"master_weights", all, [](const Cause& c) { return in_phase(c, "update"); }},
    {"clip", work, [](const Cause& c) { return in_phase(c, "update"); }},
    {"fusion", work, other_instructions},
    {"dropout", work, other_instructions},
    {"precision", all, other_types},
    {"policy", all, [](const Cause& c) { return other_types(c) || other_work(c) || other_instructions(c); }},
    {"grad_dtype", all, [](const Cause& c) { return other_types(c) || other_work(c); }},
    {"recompute", work, [](const Cause& c) { return in_phase(c, "backward") && other_work(c); }},
    {"model", all, [](const Cause& c) { return other_work(c) || other_instructions(c); }},
    {"seq", all, other_work},
    {"batch", all, other_work},
    {"grad_accumulation", all, [](const Cause& c) { return c.a.calls != c.b.calls || other_work(c); }},
    {"data_parallel", all, other_work},
    {"kernel", all, other_kernels},
    {"disable_pass", all, [](const Cause& c) { return other_instructions(c) || other_work(c) || other_kernels(c); }},
    {"deterministic", all, other_kernels},
    {"device", all, [](const Cause&) { return true; }},
    {"versions", all, [](const Cause&) { return true; }},
};

struct Change {
  std::string a, b;
};
using Changes = std::map<std::string, Change>;

Changes changes(const RunComparison& c) {
  Changes map;
  for (auto& d : c.differences) {
    if (d.section == "recipe") map[d.key] = {d.a, d.b};
    if (d.section == "device" || d.section == "versions") {
      Change& change = map[d.section];
      if (change.a.empty() || d.key == "name") change = {d.a, d.b};
    }
  }
  return map;
}

std::string lever_of(const Cause& c, Factor factor, const Changes& changed) {
  // The only thing that was changed is the reason, whatever it did.
  if (changed.size() == 1) return changed.begin()->first;
  for (auto& row : table)
    if (changed.count(row.key) && row.factors & bit(factor) && row.explains(c)) return row.key;
  return "";
}

// Time by lever, and the same per token.
struct Effects {
  std::map<std::string, LeverEffect> list;
  void add(const std::string& lever, double ms, double ms_per_token) {
    LeverEffect& e = list[lever];
    e.lever = lever, e.ms += ms, e.ms_per_token += ms_per_token;
  }
};

}  // namespace

void explain_by_levers(RunComparison& c) {
  Changes changed = changes(c);
  Effects effects;
  for (auto& cause : c.causes) {
    std::map<std::string, double> parts;
    for (size_t f = 0; f < factor_count; ++f) {
      if (cause.factors[f] == 0 && cause.factors_per_token[f] == 0) continue;
      std::string lever = lever_of(cause, Factor(f), changed);
      effects.add(lever, cause.factors[f], cause.factors_per_token[f]);
      if (!lever.empty()) parts[lever] += std::abs(c.per_token ? cause.factors_per_token[f] : cause.factors[f]);
    }
    double sum = 0;
    for (auto& [lever, ms] : parts) sum += ms, cause.levers.push_back(lever);
    std::erase_if(cause.levers, [&](auto& lever) { return parts[lever] < 0.02 * sum; });
    std::stable_sort(cause.levers.begin(), cause.levers.end(), [&](auto& x, auto& y) { return parts[x] > parts[y]; });
  }
  for (auto& bar : c.waterfall)  // of the step as a whole
    if (bar.factor >= Factor::idle) {
      bool by_itself = changed.size() == 1 && bar.factor != Factor::residual;
      effects.add(by_itself ? changed.begin()->first : "", bar.ms, bar.ms_per_token);
    }
  double difference = c.explained_difference();
  for (auto& [lever, e] : effects.list) {
    if (!lever.empty()) e.a = changed[lever].a, e.b = changed[lever].b;
    if (difference != 0) e.share = (c.per_token ? e.ms_per_token : e.ms) / difference;
    c.levers.push_back(e);
  }
  std::stable_sort(c.levers.begin(), c.levers.end(),
                   [](auto& x, auto& y) { return std::abs(x.share) > std::abs(y.share); });
}

}  // namespace crest
