// The effects of settings, from measured steps with some of the changes.
#include <algorithm>
#include <cmath>

#include "compare/measure_changes.h"
#include "compare/parts.h"

namespace crest {

namespace {

// Times of all sets, per step or per token. The empty set has A's time.
std::map<ChangeSet, SetTime> times_of(const RunComparison& c, const MeasuredChanges& m, bool swapped, bool per_token) {
  auto tokens = [&](int64_t n) { return per_token ? double(n) : 1.0; };
  const ComparedRun &first = swapped ? c.b : c.a, &second = swapped ? c.a : c.b;
  const ChangeSet all = (ChangeSet(1) << m.changes.size()) - 1;
  const double error = (c.noise.ratio_interval.high - c.noise.ratio_interval.low) / 2;
  std::map<ChangeSet, SetTime> times;
  for (auto& s : m.sets)
    times[s.set] = {s.ratio * first.step_ms / tokens(s.tokens), s.error * first.step_ms / tokens(s.tokens)};
  // All ratios refer to this step, so only the other side's step is uncertain.
  times[0] = {first.step_ms / tokens(first.tokens), 0};
  times[all] = {second.step_ms / tokens(second.tokens), 0};
  times[all].error = times[all].time * std::max(error / std::max(c.noise.ratio, 1e-9), c.noise.floor);
  if (!swapped) return times;
  std::map<ChangeSet, SetTime> other;
  for (auto& [set, time] : times) other[all & ~set] = time;
  return other;
}

const Difference* recipe_difference(const RunComparison& c, const std::string& key) {
  for (auto& d : c.differences)
    if (d.section == "recipe" && d.key == key) return &d;
  return nullptr;
}

}  // namespace

void explain_by_measured_changes(RunComparison& c, const RunRecord& a, const RunRecord& b) {
  auto of = [](const RunRecord& run, const RunRecord& other) {
    auto document = run.documents.find("changes");
    MeasuredChanges m = document == run.documents.end() ? MeasuredChanges() : changes_from_json(document->second);
    return m.other == other.uid && !m.other.empty() ? m : MeasuredChanges();
  };
  MeasuredChanges m = of(b, a);
  const bool swapped = m.changes.empty();
  if (swapped) m = of(a, b);
  if (m.changes.size() < 2 || !(c.a.step_ms > 0) || !(c.b.step_ms > 0)) return;
  c.attribution.missing = m.missing;
  const bool tokens = c.a.tokens > 0 && c.b.tokens > 0;
  if (c.per_token && std::any_of(m.sets.begin(), m.sets.end(), [](auto& s) { return s.tokens == 0; })) return;
  ChangeTimes step = attribute_changes(m.changes.size(), times_of(c, m, swapped, false)), token;
  if (tokens) token = attribute_changes(m.changes.size(), times_of(c, m, swapped, true));
  const ChangeTimes& explained = c.per_token ? token : step;
  if (explained.method == AttributionMethod::work) return;
  c.attribution.method = explained.method;
  c.attribution.interaction_ms = explained.interaction, c.attribution.error_ms = explained.interaction_error;
  if (auto [x, y] = explained.strongest; x != y) {
    c.attribution.strongest = {m.changes[x].key, m.changes[y].key};
    c.attribution.strongest_ms = explained.strongest_interaction;
  }
  c.settings.clear();
  const double difference = c.explained_difference();
  auto add = [&](SettingEffect e) {
    if (difference != 0) e.share = (c.per_token ? e.ms_per_token : e.ms) / difference;
    c.settings.push_back(std::move(e));
  };
  for (size_t i = 0; i < m.changes.size(); ++i) {
    SettingEffect e;
    const Difference* shown = recipe_difference(c, m.changes[i].key);
    e.setting = m.changes[i].key;
    e.a = shown ? shown->a : swapped ? m.changes[i].b : m.changes[i].a;
    e.b = shown ? shown->b : swapped ? m.changes[i].a : m.changes[i].b;
    for (std::string* text : {&e.a, &e.b})
      if (text->empty()) *text = "default";
    e.ms = step.changes[i].share, e.ms_per_token = tokens ? token.changes[i].share : 0;
    const ChangeTime& times = explained.changes[i];
    e.measured = SettingTimes{times.alone, times.last, times.error};
    add(e);
  }
  if (explained.method == AttributionMethod::first_and_last) {
    SettingEffect rest;
    rest.ms = step.unshared, rest.ms_per_token = tokens ? token.unshared : 0;
    add(rest);
  }
  std::stable_sort(c.settings.begin(), c.settings.end(),
                   [](auto& x, auto& y) { return std::abs(x.share) > std::abs(y.share); });
}

}  // namespace crest
