// Summary, warnings and recommendations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/shell_word.h"
#include "core/text.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"

namespace crest {

namespace {

std::string figures(const ReportGroup& g, const ReportMeasurement& c) {
  std::string text = say_ms(c.median) + " per " + say_phase(g.phase);
  if (std::isfinite(c.tokens_per_second)) text += ", " + say_rate(c.tokens_per_second) + " tokens/s";
  return text;
}

std::vector<const ReportMeasurement*> measured_recipes(const ReportGroup& g) {
  std::vector<const ReportMeasurement*> measurements;
  for (auto& c : g.measurements)
    if (c.measured()) measurements.push_back(&c);
  return measurements;
}

// Measurements possibly as fast as the fastest one.
struct AsFast {
  std::vector<std::string> labels;
  std::string apart;  // why some support no claim: "the machine was busy"
};
AsFast as_fast(const ReportGroup& g) {
  const ReportMeasurement& best = g.measurements[size_t(g.fastest)];
  AsFast equal;
  for (auto* c : measured_recipes(g)) {
    if (c == &best) continue;
    ReportPair p = judge(g, *c, best);
    if (p.verdict != Verdict::cannot_tell) continue;
    equal.labels.push_back(c->label);
    if (!p.apart.empty()) equal.apart = p.apart;
  }
  return equal;
}

Text fastest_sentence(const ReportGroup& g) {
  auto measurements = measured_recipes(g);
  const ReportMeasurement& best = g.measurements[size_t(g.fastest)];
  Text t;
  if (measurements.size() == 1) return t.strong(best.label).add(": " + figures(g, best) + " (median).");
  AsFast equal = as_fast(g);
  bool clear = equal.labels.empty();
  if (clear)
    t.add("The fastest of " + plural(measurements.size(), "recipe") + " is ");
  else
    t.add(fmt::format(
        "No clear winner among {} recipes: {}. {}: ", measurements.size(),
        equal.apart.empty() ? fmt::format("the top {} are within noise", equal.labels.size() + 1) : equal.apart,
        g.same_tokens ? "Lowest median" : "Most tokens/s"));
  t.strong(best.label).add((clear ? ": " : ", ") + figures(g, best) + (clear ? " (median)." : "."));
  const ReportMeasurement& worst = g.measurements[size_t(g.slowest)];
  ReportPair p = judge(g, worst, best);
  if (p.verdict == Verdict::b_faster)
    t.add(" It is ")
        .strong(say_faster(p.speed))
        .add(fmt::format(" {} the slowest ({}: {}).", p.speed >= 1.95 ? "as" : "than", worst.label,
                         g.same_tokens ? say_ms(worst.median) : say_rate(worst.speed()) + " tokens/s"));
  return t;
}

Text memory_sentence(const ReportGroup& g) {
  const ReportMeasurement &best = g.measurements[size_t(g.fastest)], &small = g.measurements[size_t(g.smallest)];
  Text t;
  if (!std::isfinite(best.planned_bytes)) return t;
  std::string bytes = say_bytes(best.planned_bytes);
  bool same = std::all_of(g.measurements.begin(), g.measurements.end(),
                          [&](auto& c) { return say_bytes(c.planned_bytes) == bytes; });
  if (same && g.measurements.size() > 1)
    return t.add(g.measurements.size() == 2 ? "Both need " : "All need ").strong(bytes).add(" of planned memory.");
  if (best.planned_bytes <= small.planned_bytes)
    return t.add("It also needs the least memory: ").strong(say_bytes(best.planned_bytes)).add(" planned.");
  t.add("Least memory: ")
      .strong(small.label)
      .add(", " + say_bytes(small.planned_bytes) + " planned; " +
           (as_fast(g).labels.empty() ? "the fastest" : best.label) + " needs ");
  return t.add(say_bytes(best.planned_bytes) + ", " + say_more(best.planned_bytes / small.planned_bytes) + ".");
}

// By peaks on the device, where nothing was planned: a table of another program.
Text least_peak(const ReportGroup& g) {
  const ReportMeasurement *small = nullptr, &best = g.measurements[size_t(g.fastest)];
  for (auto* c : measured_recipes(g))
    if (std::isfinite(c->device_bytes) && (!small || c->device_bytes < small->device_bytes)) small = c;
  Text t;
  if (!small) return t;
  t.add("Least memory: ").strong(small->label).add(", a peak of " + say_bytes(small->device_bytes) + " on the device");
  if (small != &best && std::isfinite(best.device_bytes))
    t.add(fmt::format("; the fastest needs {}, {}", say_bytes(best.device_bytes),
                      say_more(best.device_bytes / small->device_bytes)));
  return t.add(".");
}

Text misfits(const ReportGroup& g) {
  std::vector<std::string> labels;
  for (auto& c : g.measurements)
    if (c.out_of_memory) labels.push_back(c.label);
  Text t;
  if (labels.empty()) return t;
  std::string names = labels.size() <= 3 ? say_list(labels)
                                         : say_list({labels[0], labels[1], plural(labels.size() - 2, "more", "more")});
  return t.add(fmt::format("{} {} not fit in memory: {}.", plural(labels.size(), "recipe"),
                           labels.size() == 1 ? "does" : "do", names));
}

// The change with the largest effect on speed beyond noise.
const SettingChange* strongest(const std::vector<SettingChange>& changes) {
  const SettingChange* best = nullptr;
  double most = 0;
  for (auto& c : changes)
    for (auto& p : c.pairs)
      if (p.verdict != Verdict::cannot_tell && std::abs(std::log(p.speed)) > most)
        most = std::abs(std::log(p.speed)), best = &c;
  return best;
}

Text training_sentence(const RunRecord& r, const std::string& label) {
  const Reached x = reached(r);
  Text t;
  t.strong(label).add(": ");
  if (std::isfinite(x.val_loss)) t.add(fmt::format("validation loss {:.4f}", x.val_loss));
  if (std::isfinite(x.loss)) t.add(fmt::format("{}loss {:.4f}", std::isfinite(x.val_loss) ? ", " : "", x.loss));
  if (!std::isfinite(x.val_loss) && !std::isfinite(x.loss)) t.add("no loss was logged");
  t.add(fmt::format(" after {} step{}", x.steps, x.steps == 1 ? "" : "s"));
  if (double tokens = tokens_per_step(r.recipe); std::isfinite(tokens))
    t.add(fmt::format(" ({} tokens)", format_count(tokens * double(x.steps))));
  if (x.seconds > 0) t.add(fmt::format(". The steps took {}", format_duration(x.seconds)));
  return t.add(".");
}

// Losses of different data or tokenizers say nothing about each other.
bool same_data(const std::vector<const RunRecord*>& runs) {
  auto data = [](const RunRecord& r) {
    std::string hash = json_text(r.recipe, "/data_hash");
    return hash.empty() ? json_text(r.recipe, "/data") : hash;
  };
  return std::all_of(runs.begin(), runs.end(),
                     [&](auto* r) { return !data(*r).empty() && data(*r) == data(*runs[0]); });
}

// The lowest validation loss, with its cost against the next one.
Text training_conclusion(const std::vector<const RunRecord*>& runs, const std::vector<std::string>& labels) {
  if (!same_data(runs)) return Text("The runs have different data, so their losses cannot be compared.");
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < runs.size(); ++i)
    if (double val = reached(*runs[i]).val_loss; std::isfinite(val)) order.push_back({val, i});
  if (order.size() < 2) return {};
  std::sort(order.begin(), order.end());
  const auto [best, at] = order[0];
  const Reached first = reached(*runs[at]), next = reached(*runs[order[1].second]);
  Text t("Lowest validation loss at the end: ");
  t.strong(labels[at]).add(fmt::format(", {:.4f}. ", best));
  if (fmt::format("{:.4f}", order[1].first) == fmt::format("{:.4f}", best))
    return t.add(labels[order[1].second] + " has the same.");
  t.add(fmt::format("{} follows with {:.4f}", labels[order[1].second], order[1].first));
  if (first.seconds > 0 && next.seconds > 0)
    t.add(fmt::format(", in {:.2f} times the time", next.seconds / first.seconds));
  return t.add(".");
}

void add_tiles(Page& page, const ReportGroup& g) {
  const ReportMeasurement& best = g.measurements[size_t(g.fastest)];
  Tiles tiles;
  bool several = measured_recipes(g).size() > 1;
  std::string of = !several                    ? "median"
                   : as_fast(g).labels.empty() ? "of the fastest recipe"
                   : g.same_tokens             ? "of the lowest median"
                                               : "of the recipe with the most tokens/s";
  tiles.tiles.push_back({"Time per " + say_phase(g.phase), say_ms(best.median), of});
  if (std::isfinite(best.tokens_per_second)) tiles.tiles.push_back({"Tokens/s", say_rate(best.tokens_per_second), of});
  if (std::isfinite(best.planned_bytes))
    tiles.tiles.push_back({"Planned memory", say_bytes(best.planned_bytes), several ? of : ""});
  if (several && judge(g, g.measurements[size_t(g.slowest)], best).verdict == Verdict::b_faster) {
    double ratio = best.speed() / g.measurements[size_t(g.slowest)].speed();
    tiles.tiles.push_back({"Fastest over slowest", say_times(ratio),
                           fmt::format("{} measured", plural(measured_recipes(g).size(), "recipe"))});
  }
  page.blocks.push_back(tiles);
}

// Planned memory grows by the same bytes per sequence, so two batch sizes predict how many fit.
Text largest_batch(const ReportGroup& g, const ReportMeasurement& best) {
  double memory = json_number(best.timed->device, "/memory_bytes"), batch = json_number(best.timed->recipe, "/batch");
  const ReportMeasurement* other = nullptr;
  for (auto& c : g.measurements) {
    bool same = std::all_of(g.varying.begin(), g.varying.end(),
                            [&](auto& name) { return name == "batch" || c.setting(name) == best.setting(name); });
    if (same && c.setting("batch") != best.setting("batch") && std::isfinite(c.planned_bytes)) other = &c;
  }
  if (!other || !(memory > 0)) return {};
  double a_sequence =
      (best.planned_bytes - other->planned_bytes) / (batch - json_number(other->timed->recipe, "/batch"));
  double fits = std::floor((memory - best.planned_bytes) / a_sequence + batch);
  if (!(a_sequence > 0) || !std::isfinite(fits)) return {};
  return Text(
      fmt::format("With it, each sequence adds {} of planned memory, so about {:.0f} would fit in the {} of the device "
                  "(crest plan gives the exact number).",
                  say_bytes(a_sequence), fits, say_bytes(memory)));
}

// Values better in every pair, combined with the best recipe, if this was not measured yet.
Text untried(const ReportMeasurement& best, const std::vector<SettingChange>& changes) {
  std::vector<std::string> ideas;
  for (auto& c : changes) {
    bool measured = std::any_of(c.pairs.begin(), c.pairs.end(), [&](auto& p) { return p.a == &best || p.b == &best; });
    auto all = [&](Verdict v) {
      return std::all_of(c.pairs.begin(), c.pairs.end(), [&](auto& p) { return p.verdict == v; });
    };
    if (measured) continue;
    if (best.setting(c.setting) == c.from && all(Verdict::b_faster)) ideas.push_back(setting_label({c.setting, c.to}));
    if (best.setting(c.setting) == c.to && all(Verdict::a_faster)) ideas.push_back(setting_label({c.setting, c.from}));
  }
  if (ideas.empty()) return {};
  return Text("Try next: " + best.label + " with " + say_list(ideas) +
              ": faster wherever it was measured, but not measured with this recipe.");
}

}  // namespace

void add_summary(Page& page, const ReportData& data, const std::vector<std::vector<SettingChange>>& setting_changes) {
  page.blocks.push_back(Heading{2, "Summary"});
  bool tiles = false;
  for (size_t i = 0; i < data.groups.size(); ++i) {
    const ReportGroup& g = data.groups[i];
    if (data.groups.size() > 1) page.blocks.push_back(Heading{3, g.title()});
    Bullets b;
    if (g.fastest >= 0) {
      if (!tiles) add_tiles(page, g), tiles = true;
      b.items.push_back(fastest_sentence(g));
      if (g.measurements.size() > 1) b.items.push_back(g.smallest >= 0 ? memory_sentence(g) : least_peak(g));
      if (const SettingChange* c = strongest(setting_changes[i]); c && g.varying.size() > 1)
        b.items.push_back(Text("Largest effect on speed: ").append(c->sentence));
    }
    b.items.push_back(misfits(g));
    b.items.erase(std::remove_if(b.items.begin(), b.items.end(), [](auto& t) { return t.empty(); }), b.items.end());
    if (!b.items.empty()) page.blocks.push_back(b);
  }
  Bullets trainings;
  std::vector<std::string> labels = training_labels(data.trainings);
  if (labels.size() > 1)
    if (Text conclusion = training_conclusion(data.trainings, labels); !conclusion.empty())
      trainings.items.push_back(conclusion);
  for (size_t i = 0; i < labels.size(); ++i)
    trainings.items.push_back(training_sentence(*data.trainings[i], labels[i]));
  if (!trainings.items.empty() && !data.groups.empty()) page.blocks.push_back(Heading{3, "Training"});
  if (!trainings.items.empty()) page.blocks.push_back(trainings);
}

// What a table of results leaves open, by its file.
static void add_imported(const ReportData& data, std::vector<Text>& list) {
  std::map<std::string, std::vector<const RunRecord*>> files;
  for (auto& r : *data.runs)
    if (is_result(r)) files[r.imported_from].push_back(&r);
  for (auto& [file, rows] : files) {
    list.push_back(
        Text(fmt::format("The figures of {} are one number for each quantity, as {} states them. Without "
                         "samples there is no interval, so only differences above 10% count.",
                         plural(rows.size(), "recipe"), file)));
    std::vector<std::string> timed;
    for (auto* r : rows)
      if (double ms = json_number(r->result, "/step_ms_median"); r->status == "out_of_memory" && std::isfinite(ms))
        timed.push_back(fmt::format("{}batch {} ({}{})",
                                    r->recipe.contains("variant") ? json_text(r->recipe, "/variant") + ", " : "",
                                    json_number(r->recipe, "/batch"), say_ms(ms),
                                    r->result.contains("note") ? "; " + json_text(r->result, "/note") : ""));
    if (!timed.empty())
      list.push_back(Text(fmt::format("{} out of memory, but the text also gives a time: {}. The time is not compared.",
                                      timed.size() == 1 ? "A recipe is" : plural(timed.size(), "recipe") + " are",
                                      say_list(timed))));
    if (double lines = json_number(rows[0]->result, "/unreadable_lines"); lines > 0)
      list.push_back(
          Text(fmt::format("{} of {} with a batch size and without a figure were not read, the first in {}.",
                           plural(size_t(lines), "line"), file, json_text(rows[0]->result, "/first_unreadable"))));
  }
}

std::vector<Text> warnings(const ReportData& data) {
  std::vector<Text> list;
  std::vector<std::string> busy;
  double most = 0;
  std::set<std::string> throttled, unfinished, machines, reasons;
  size_t slow_samples = 0, samples = 0;
  for (auto& r : *data.runs) {
    if (std::string host = json_text(r.environment, "/host_id"); !host.empty()) machines.insert(host);
    if (was_busy(r)) busy.push_back(r.name), most = std::max(most, other_load(r));
    for (auto& s : r.samples) {
      ++samples;
      if (s.throttled) ++slow_samples, throttled.insert(r.uid + r.name);
    }
    for (auto& reason : json_texts(r.result, "/throttle_reasons")) reasons.insert(reason);
    if (r.status == "failed" || r.status == "interrupted" || r.status == "lost" || r.status == "running")
      unfinished.insert(shown_name(r) + " (" + spaced(r.status) + ")");
  }
  if (!busy.empty())
    list.push_back(
        Text("The machine was busy")
            .add(fmt::format(
                " during {} of {}: other processes kept up to {:.1f} CPUs busy. Such times are longer and noisier.",
                busy.size(), plural(data.runs->size(), "run"), most)));
  if (slow_samples)
    list.push_back(Text(fmt::format("{} of {} were taken while the device was throttled{}, in {}.", slow_samples,
                                    plural(samples, "sample"),
                                    reasons.empty() ? "" : " (" + say_list({reasons.begin(), reasons.end()}) + ")",
                                    plural(throttled.size(), "run"))));
  for (auto& g : data.groups)
    for (auto& c : g.measurements)
      if (!c.unread_profile.empty())
        list.push_back(Text("A profile cannot be read and is left out: " + c.unread_profile + "."));
  add_imported(data, list);
  if (machines.size() > 1)
    list.push_back(Text(
        fmt::format("The runs come from {} machines, so times differ by more than the recipes.", machines.size())));
  if (!unfinished.empty())
    list.push_back(Text("Not finished: " + say_list({unfinished.begin(), unfinished.end()}) + "."));
  return list;
}

// The settings of a table are words of its text, not flags.
static std::vector<Text> imported_recommendation(const ReportGroup& g, const std::vector<SettingChange>& changes) {
  const ReportMeasurement& best = g.measurements[size_t(g.fastest)];
  AsFast as_best = as_fast(g);
  std::vector<Text> list;
  if (as_best.labels.empty())
    list.push_back(Text("Use ").strong(best.label).add(": the fastest recipe of the text."));
  else
    list.push_back(
        Text(fmt::format("{} of the recipes are within 10% of the fastest: {} and {}. Choose by memory, or "
                         "measure them side by side with crest bench --ab.",
                         as_best.labels.size() + 1, best.label, say_list(as_best.labels))));
  for (auto& c : changes) {
    const bool always = !c.pairs.empty() && std::all_of(c.pairs.begin(), c.pairs.end(),
                                                        [](auto& p) { return p.verdict == Verdict::b_faster; });
    if (always && c.setting == "variant") list.push_back(Text(c.sentence));
  }
  Text t("To check these figures on a device, measure the same settings with ");
  list.push_back(t.code("crest bench").add("."));
  return list;
}

std::vector<Text> recommendations(const ReportGroup& g, const std::vector<SettingChange>& changes) {
  std::vector<Text> list;
  if (g.fastest < 0) return list;
  if (is_result(*g.measurements[size_t(g.fastest)].timed)) return imported_recommendation(g, changes);
  const ReportMeasurement& best = g.measurements[size_t(g.fastest)];
  AsFast as_best = as_fast(g);
  if (!as_best.apart.empty())
    return {Text(fmt::format(
        "No recipe is recommended: {} during these measurements. Measure again, interleaved or on an idle machine.",
        as_best.apart))};
  const std::vector<std::string>& equal = as_best.labels;
  if (!equal.empty())
    list.push_back(Text(fmt::format(
        "No recipe is recommended: the top {} are within noise ({}{}). Choose by memory, or compare them in "
        "interleaved rounds with crest bench --ab.",
        equal.size() + 1, best.label, equal.size() <= 3 ? ", " + join(equal, ", ") : ", ...")));
  std::string flags;
  for (auto& name : g.varying)
    if (std::string v = best.setting(name); best.timed->recipe.contains(name) && v == shell_word(v)) {
      std::string flag = name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      flags += (flags.empty() ? "--" : " --") + flag + " " + v;
    }
  if (!flags.empty() && equal.empty()) {
    Text t("Use ");
    t.code(flags).add(": the fastest recipe measured");
    if (std::isfinite(best.planned_bytes)) {
      t.add(", with " + say_bytes(best.planned_bytes) + " of planned memory");
      double available = json_number(best.timed->device, "/memory_bytes");
      if (available > 0) t.add(fmt::format(" ({} of the device)", say_percent(best.planned_bytes / available)));
    }
    list.push_back(t.add("."));
  }
  if (Text t = largest_batch(g, best); !t.empty()) list.push_back(t);
  std::string batch = best.setting("batch");
  bool varies = std::find(g.varying.begin(), g.varying.end(), "batch") != g.varying.end();
  bool larger = std::any_of(g.measurements.begin(), g.measurements.end(),
                            [&](auto& c) { return before("batch", batch, c.setting("batch")); });
  if (varies && !larger && equal.empty())
    list.push_back(
        Text("The fastest recipe has the largest batch measured (" + batch + "). A larger one may be faster still."));
  if (Text t = untried(best, changes); !t.empty() && equal.empty()) list.push_back(t);
  std::vector<std::string> unknown;
  for (auto& c : changes)
    if (std::all_of(c.pairs.begin(), c.pairs.end(), [](auto& p) {
          return std::isfinite(p.speed) && p.apart.empty() && p.verdict == Verdict::cannot_tell;
        }))
      unknown.push_back(spaced(c.setting) + " " + short_value(c.from) + " or " + short_value(c.to));
  if (!unknown.empty()) list.push_back(Text("Within noise, so choose by memory: " + say_list(unknown) + "."));
  if (best.spread() > 0.05 && best.spread() < 1e9)
    list.push_back(
        Text(fmt::format("The median of the fastest recipe is only known to within {}. Measure again on an idle "
                         "machine, with more samples.",
                         say_percent(best.spread()))));
  if (!best.profile) {
    Text t("To see where its time goes, run ");
    list.push_back(t.code("crest profile").add(" with the same flags and add that run to this report."));
  }
  return list;
}

}  // namespace crest
