// The effect of each setting, from pairs of recipes without another difference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/compare.h"
#include "core/text.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"
#include "stats/noise.h"

namespace crest {

namespace {

// Milliseconds per token, so batches of any size are comparable; milliseconds if tokens are
// unknown.
std::vector<double> scaled_samples(const ReportMeasurement& c) {
  double tokens = c.tokens > 0 ? c.tokens : 1;
  std::vector<double> ms = c.ms.values();
  if (ms.empty()) ms.push_back(c.median);
  for (double& v : ms) v /= tokens;
  return ms;
}

double ratio_of(double b, double a) { return a > 0 ? b / a : std::nan(""); }

struct Range {
  double low = 1e300, high = -1e300;
  void add(double v) {
    if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  bool any() const { return low <= high; }
};

std::string change_of(const SettingChange& c) {
  const std::string change = short_value(c.from) + " to " + short_value(c.to);
  return c.setting == "device" || c.setting == "run" ? change : spaced(c.setting) + " " + change;
}

Text sentence_of(const SettingChange& change) {
  size_t faster = 0, slower = 0, unknown = 0, apart = 0, fits = 0, fails = 0;
  std::string why;  // the reason, for separate measurements
  Range speed, memory;
  const ReportPair *most = nullptr, *least = nullptr;
  for (auto& p : change.pairs) {
    memory.add(p.memory);
    if (p.a->out_of_memory != p.b->out_of_memory) (p.a->out_of_memory ? fits : fails) += 1;
    if (!std::isfinite(p.speed)) continue;
    if (p.verdict == Verdict::cannot_tell) {
      ++(p.apart.empty() ? unknown : apart);
      if (!p.apart.empty()) why = p.apart;
      continue;
    }
    (p.verdict == Verdict::b_faster ? faster : slower) += 1;
    speed.add(p.speed);
    if (!most || p.speed > most->speed) most = &p;
    if (!least || p.speed < least->speed) least = &p;
  }
  Text t;
  t.strong(change_of(change)).add(": ");
  const char* noise = noise_word(*change.pairs[0].a);
  size_t all = faster + slower + unknown + apart;
  std::string of = all == 1 ? "" : fmt::format(" in {} of {} pairs", std::max(faster, slower), all);
  if (all == 0)
    t.add("speeds not comparable");
  else if (all == apart)
    t.add("speeds not compared, since " + why);
  else if (faster + slower == 0)
    t.add(fmt::format("no difference in speed beyond {}{}", noise,
                      unknown == 1 ? "" : fmt::format(" in any of {} pairs", unknown)));
  else if (faster && slower)
    t.add(fmt::format("faster in {}, slower in {} of {} pairs, from {} to {}", faster, slower, all,
                      say_faster(speed.low), say_faster(speed.high)));
  else
    t.strong(say_faster_range(speed.low, speed.high)).add(of);
  if (unknown && faster + slower) t.add(fmt::format(", {} within {}", unknown, noise));
  if (apart && apart < all) t.add(fmt::format(", {} not compared, since {}", apart, why));
  if (memory.any()) t.add("; planned memory: " + say_more_range(memory.low, memory.high));
  t.add(".");
  if (fits)
    t.add(fmt::format(" {} only with {}.", fits == 1 ? "One recipe fits" : say_count(fits) + " recipes fit",
                      setting_label({change.setting, change.to})));
  if (fails)
    t.add(fmt::format(" {} with {}.",
                      fails == 1 ? "One recipe no longer fits" : say_count(fails) + " recipes no longer fit",
                      setting_label({change.setting, change.to})));
  // If the gain depends on other settings, names them.
  if (most && least && most != least && most->speed / least->speed > 1.1 && (!faster || !slower) &&
      !most->context.empty())
    t.add(fmt::format(" Most with {}, least with {}.", (faster == 0 ? least : most)->context,
                      (faster == 0 ? most : least)->context));
  return t;
}

}  // namespace

ReportPair judge(const ReportGroup& group, const ReportMeasurement& a, const ReportMeasurement& b) {
  ReportPair p;
  p.a = &a, p.b = &b;
  p.memory = ratio_of(b.planned_bytes, a.planned_bytes);
  if (!a.measured() || !b.measured()) {
    p.speed = std::nan("");
    return p;
  }
  bool paired = same_rounds(*a.timed, *b.timed);
  NoiseCheck n =
      check_noise(scaled_samples(a), scaled_samples(b), group.noise > 0 ? std::max(group.noise, 0.01) : -1, paired);
  p.speed = 1 / n.ratio;
  p.interval = {1 / n.ratio_interval.high, 1 / n.ratio_interval.low};
  // In interleaved rounds other work slows both. In separate runs its share of each is unknown.
  if (!paired && !apart_doubt(*a.timed, *b.timed).empty())
    p.apart = json_text(a.timed->device, "/kind") == "cuda" ? "the clocks differed" : "the machine was busy";
  p.verdict = p.apart.empty() ? n.verdict : Verdict::cannot_tell;
  return p;
}

std::vector<SettingChange> find_setting_changes(const ReportGroup& g) {
  std::vector<SettingChange> changes;
  auto rest_equal = [&](const ReportMeasurement& a, const ReportMeasurement& b, const std::string& setting) {
    return std::all_of(g.varying.begin(), g.varying.end(),
                       [&](auto& name) { return name == setting || a.setting(name) == b.setting(name); });
  };
  for (auto& setting : g.varying)
    for (auto& a : g.measurements) {
      // The next value of this setting, with all others equal.
      const ReportMeasurement* next = nullptr;
      for (auto& b : g.measurements)
        if (a.setting(setting) != b.setting(setting) && rest_equal(a, b, setting) &&
            before(setting, a.setting(setting), b.setting(setting)) &&
            (!next || before(setting, b.setting(setting), next->setting(setting))))
          next = &b;
      if (!next) continue;
      std::string from = a.setting(setting), to = next->setting(setting);
      auto change = std::find_if(changes.begin(), changes.end(),
                                 [&](auto& c) { return c.setting == setting && c.from == from && c.to == to; });
      if (change == changes.end()) change = changes.insert(changes.end(), SettingChange{setting, from, to, {}, {}});
      ReportPair p = judge(g, a, *next);
      p.setting = setting, p.from = from, p.to = to;
      std::vector<std::string> context;
      for (auto& name : g.varying)
        if (std::string v = a.setting(name); name != setting && !v.empty()) context.push_back(setting_label({name, v}));
      p.context = join(context, ", ");
      change->pairs.push_back(p);
    }
  for (auto& c : changes) c.sentence = sentence_of(c);
  return changes;
}

void add_setting_changes(Page& page, const ReportGroup& g, const std::vector<SettingChange>& changes) {
  if (changes.empty()) return;
  Bullets sentences;
  PageTable t;
  t.columns = {{"change", Align::left}, {"with", Align::left},    {"speed"},
               {"95% interval"},        {"verdict", Align::left}, {"planned memory"}};
  for (auto& c : changes) {
    sentences.items.push_back(c.sentence);
    for (auto& p : c.pairs) {
      bool known = std::isfinite(p.speed);
      std::string verdict = p.verdict == Verdict::b_faster   ? "faster"
                            : p.verdict == Verdict::a_faster ? "slower"
                            : !p.apart.empty()               ? p.apart
                                                             : std::string("within ") + noise_word(*p.a);
      if (!known) verdict = p.a->out_of_memory || p.b->out_of_memory ? "out of memory" : "not measured";
      PageCell cell(verdict);
      if (p.verdict == Verdict::cannot_tell || !known) cell.look = Look::soft;
      t.rows.push_back({change_of(c), p.context, known ? say_times(p.speed) : "-",
                        known && p.interval.low < p.interval.high
                            ? fmt::format("{:.2f} to {:.2f}", p.interval.low, p.interval.high)
                            : "-",
                        cell, std::isfinite(p.memory) ? say_times(p.memory) : "-"});
    }
  }
  page.blocks.push_back(sentences);
  t.folded = true;
  t.summary = fmt::format("All {}", plural(t.rows.size(), "pair"));
  t.note = is_result(*g.measurements[0].timed)
               ? "Each figure is one number, so the report ignores differences up to 10%."
           : g.noise > 0.01
               ? fmt::format("Differences up to {} are treated as noise: {}.", say_percent(g.noise, 1), g.noise_source)
               : "Differences up to 1% are treated as noise; no larger noise was measured.";
  if (is_result(*g.measurements[0].timed)) move_constants_to_note(t, 3);
  page.blocks.push_back(t);
}

}  // namespace crest
