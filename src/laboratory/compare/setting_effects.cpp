#include "compare/parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compare/sentences.h"
#include "plan/recipe_settings.h"
#include "train/training_settings.h"

namespace crest {

namespace {

bool has(const std::vector<std::string>& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
bool differs(double a, double b) { return std::abs(a - b) > 0.005 * std::max(std::abs(a), std::abs(b)); }

bool other_instructions(const Cause& c) { return !same_instructions(c); }
// Ignores their order: it varies with the times.
bool other_names(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  return a != b;
}
bool other_types(const Cause& c) {
  return other_names(c.a.arithmetic, c.b.arithmetic) || other_names(c.a.types, c.b.types);
}
bool other_work(const Cause& c) { return differs(c.a.flops, c.b.flops) || differs(c.a.bytes, c.b.bytes); }
bool other_kernels(const Cause& c) { return other_names(c.a.kernels, c.b.kernels); }
bool in_attention(const Cause& c) {
  return has(c.roles, "attn") || has(c.a.classes, "attention") != has(c.b.classes, "attention");
}

constexpr unsigned bit(Factor f) { return 1u << unsigned(f); }

unsigned bits(Effect::Factors factors) {
  switch (factors) {
    case Effect::rate: return bit(Factor::rate);
    case Effect::work: return bit(Factor::flops) | bit(Factor::bytes) | bit(Factor::efficiency) | bit(Factor::unsplit);
    case Effect::communication: return bit(Factor::communication);
    case Effect::all: break;
  }
  return ~0u;
}

// Whether the effect applies to a group of instructions.
bool is_there(const Effect& e, const Cause& c) {
  auto has_any_role = [&] {
    return std::any_of(e.roles.begin(), e.roles.end(), [&](const char* role) { return has(c.roles, role); });
  };
  if (!e.roles.empty() && !has_any_role()) return false;
  if (e.phase && c.phase.find(e.phase) == std::string::npos) return false;
  switch (e.where) {
    case Effect::anywhere: return true;
    case Effect::attention: return in_attention(c);
    case Effect::types: return other_types(c);
    case Effect::instructions: return other_instructions(c);
    case Effect::amount: return other_work(c);
    case Effect::types_or_amount: return other_types(c) || other_work(c);
    case Effect::changed: return other_types(c) || other_work(c) || other_instructions(c);
    case Effect::kernels: return other_kernels(c);
    case Effect::calls: return c.a.calls != c.b.calls || other_work(c);
  }
  return false;
}

// A setting, or another influence on a run, with one of its effects.
struct Row {
  std::string key;
  Effect effect;
  unsigned factors;
};

// How a differing key can affect a group: its settings' effects in table order, each with its
// factors. Effects on the remainder come last. The keys `device` and `versions` stand for
// everything in their sections. Each factor of a group goes to the first matching row.
const std::vector<Row>& effects() {
  static const std::vector<Row> all = [] {
    std::vector<Row> first, last;
    // Arithmetic rates first: a faster device or precision is faster whatever else changed.
    for (auto& s : recipe_settings())
      for (auto& e : s.effects)
        if (!e.last && e.factors == Effect::rate) first.push_back({s.key(), e, bits(e.factors)});
    first.push_back({"device", {Effect::all}, bit(Factor::rate) | bit(Factor::bandwidth) | bit(Factor::clocks)});
    for (auto& s : recipe_settings())
      for (auto& e : s.effects)
        if (e.last || e.factors != Effect::rate) (e.last ? last : first).push_back({s.key(), e, bits(e.factors)});
    last.push_back({"device", {Effect::all}, ~0u});
    last.push_back({"versions", {Effect::all}, ~0u});
    first.insert(first.end(), last.begin(), last.end());
    return first;
  }();
  return all;
}

struct Change {
  std::string a, b;
};
using Changes = std::map<std::string, Change>;

Changes changes(const RunComparison& c) {
  Changes map;
  if (!c.a.recipe_known || !c.b.recipe_known) return map;  // anything may have changed
  for (auto& d : c.differences) {
    // Values alone (a learning rate, a seed) do not affect time.
    const Setting* setting = d.section == "recipe" ? find_run_setting(d.key) : nullptr;
    if (d.section == "recipe" && d.key != "data_hash" && (!setting || !setting->effects.empty()))
      map[d.key] = {d.a, d.b};
    if (d.section == "device" || d.section == "versions") {
      Change& change = map[d.section];
      auto shown = [&](const std::string& value) {
        return d.key != "threads" ? value : value + (value == "1" ? " thread" : " threads");
      };
      if (change.a.empty() || d.key == "name") change = {shown(d.a), shown(d.b)};
    }
  }
  return map;
}

// Any change may cause unexplained time, or change kernel efficiency on another device.
bool any_may_be_the_cause(Factor factor, const Changes& changed) {
  return factor == Factor::unsplit || (factor == Factor::efficiency && changed.count("device"));
}

// The changes behind a factor of a group: the best one, or all possible ones.
std::set<std::string> settings_of(const Cause& c, Factor factor, const Changes& changed) {
  // If only one change can affect time, it is the cause of the whole difference.
  if (changed.size() == 1) return {changed.begin()->first};
  std::set<std::string> keys;
  for (auto& row : effects())
    if (changed.count(row.key) && row.factors & bit(factor) && is_there(row.effect, c)) {
      keys.insert(row.key);
      if (!any_may_be_the_cause(factor, changed)) break;
    }
  return keys;
}

// Time by setting, per step and per token.
struct Effects {
  std::map<std::string, SettingEffect> list;
  void add(const std::string& setting, double ms, double ms_per_token) {
    SettingEffect& e = list[setting];
    e.setting = setting, e.ms += ms, e.ms_per_token += ms_per_token;
  }
};

}  // namespace

bool nothing_changed(const RunComparison& c) {
  // A step waits for data unless it was loaded ahead, although loading is not part of its work.
  static const std::set<std::string> loading = {"prefetch", "loader_threads"};
  bool other = std::any_of(c.differences.begin(), c.differences.end(), [](auto& d) {
    return d.section == "kernels" || d.section == "conditions" || (d.section == "recipe" && loading.count(d.key));
  });
  return c.a.recipe_known && c.b.recipe_known && !other && changes(c).empty();
}

void explain_by_settings(RunComparison& c) {
  Changes changed = changes(c);
  Effects effects;
  for (auto& cause : c.causes) {
    std::map<std::string, double> parts;
    for (size_t f = 0; f < factor_count; ++f) {
      if (cause.factors[f] == 0 && cause.factors_per_token[f] == 0) continue;
      std::set<std::string> settings = settings_of(cause, Factor(f), changed);
      std::string setting = settings.size() == 1 ? *settings.begin() : "";
      cause.ambiguous |= settings.size() > 1 && Factor(f) == cause.main_factor;
      effects.add(setting, cause.factors[f], cause.factors_per_token[f]);
      if (!setting.empty()) parts[setting] += std::abs(c.per_token ? cause.factors_per_token[f] : cause.factors[f]);
    }
    double sum = 0;
    for (auto& [setting, ms] : parts) sum += ms, cause.settings.push_back(setting);
    std::erase_if(cause.settings, [&](auto& setting) { return parts[setting] < 0.02 * sum; });
    std::stable_sort(cause.settings.begin(), cause.settings.end(),
                     [&](auto& x, auto& y) { return parts[x] > parts[y]; });
  }
  for (auto& bar : c.waterfall)  // for the whole step
    if (bar.factor >= Factor::idle) {
      bool by_itself = changed.size() == 1 && bar.factor != Factor::residual;
      effects.add(by_itself ? changed.begin()->first : "", bar.ms, bar.ms_per_token);
    }
  double difference = c.explained_difference();
  for (auto& [setting, e] : effects.list) {
    if (!setting.empty()) e.a = changed[setting].a, e.b = changed[setting].b;
    if (difference != 0) e.share = (c.per_token ? e.ms_per_token : e.ms) / difference;
    c.settings.push_back(e);
  }
  std::stable_sort(c.settings.begin(), c.settings.end(),
                   [](auto& x, auto& y) { return std::abs(x.share) > std::abs(y.share); });
}

}  // namespace crest
