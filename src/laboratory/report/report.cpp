#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/json_number.h"
#include "report/phrases.h"
#include "report/report_parts.h"

namespace crest {

namespace {

std::string title_of(const ReportData& data) {
  std::set<std::string> models;
  for (auto& g : data.groups)
    if (!g.model.empty()) models.insert(g.model);
  for (auto* r : data.trainings)
    if (std::string m = json_text(r->recipe, "/model"); !m.empty()) models.insert(m);
  std::string of = models.empty()       ? ""
                   : models.size() <= 3 ? say_list({models.begin(), models.end()})
                                        : plural(models.size(), "model");
  size_t measurements = 0;
  std::set<std::string> varying;
  for (auto& g : data.groups) {
    measurements += g.measurements.size();
    varying.insert(g.varying.begin(), g.varying.end());
  }
  if (measurements > 1 && !varying.empty() && varying.size() <= 4) {
    std::vector<std::string> names;
    for (auto& g : data.groups)
      for (auto& v : g.varying)
        if (std::string w = setting_label({v, ""}); std::find(names.begin(), names.end(), v) == names.end())
          names.push_back(v);
    for (auto& n : names) std::replace(n.begin(), n.end(), '_', ' ');
    std::string list = say_list(names);
    return (of.empty() ? "" : of + ": ") + list;
  }
  return of.empty() ? "Measured runs" : of + (measurements ? ": time and memory" : ": training");
}

std::string subtitle_of(const ReportData& data) {
  std::set<std::string> devices;
  std::string first = "9", last;
  for (auto& r : *data.runs) {
    if (std::string d = json_text(r.device, "/name"); !d.empty()) devices.insert(d);
    if (r.started.empty()) continue;
    first = std::min(first, r.started.substr(0, 10));
    last = std::max(last, r.started.substr(0, 10));
  }
  std::vector<std::string> parts = {plural(data.runs->size(), "run")};
  if (!devices.empty())
    parts[0] +=
        " on " + (devices.size() <= 3 ? say_list({devices.begin(), devices.end()}) : plural(devices.size(), "device"));
  if (!last.empty()) parts.push_back(first == last ? first : first + " to " + last);
  std::string text = parts[0];
  if (parts.size() > 1) text += ", " + parts[1];
  return text;
}

Json to_json(const ReportMeasurement& c) {
  Json runs = Json::array(), settings = Json::object();
  for (auto* r : c.runs) runs.push_back(r->uid);
  for (auto& [key, value] : c.settings) settings[key] = value;
  return {{"label", c.label},
          {"runs", runs},
          {"settings", settings},
          {"out_of_memory", c.out_of_memory},
          {"step_ms_median", number_or_null(c.median)},
          {"step_ms_low", number_or_null(c.interval.low)},
          {"step_ms_high", number_or_null(c.interval.high)},
          {"step_ms_mean", number_or_null(c.mean)},
          {"step_ms_std", number_or_null(c.deviation)},
          {"samples", c.ms.count()},
          {"throttled", c.throttled},
          {"tokens_per_second", number_or_null(c.tokens_per_second)},
          {"mfu", number_or_null(c.mfu)},
          {"planned_bytes", number_or_null(c.planned_bytes)},
          {"device_peak_bytes", number_or_null(c.device_bytes)},
          {"profiled", c.profile != nullptr}};
}

Json to_json(const SettingChange& change) {
  Json pairs = Json::array();
  for (auto& p : change.pairs)
    pairs.push_back({{"a", p.a->label},
                     {"b", p.b->label},
                     {"speed", number_or_null(p.speed)},
                     {"speed_low", number_or_null(p.interval.low)},
                     {"speed_high", number_or_null(p.interval.high)},
                     {"verdict", name(p.verdict)},
                     {"memory", number_or_null(p.memory)}});
  return {{"setting", change.setting},
          {"from", change.from},
          {"to", change.to},
          {"sentence", change.sentence.plain()},
          {"pairs", pairs}};
}

Json lines_of(const std::vector<PageBlock>& blocks, size_t from) {
  Json lines = Json::array();
  for (size_t i = from; i < blocks.size(); ++i)
    if (auto* b = std::get_if<Bullets>(&blocks[i]))
      for (auto& t : b->items) lines.push_back(t.plain());
  return lines;
}

Json plain(const std::vector<Text>& texts) {
  Json lines = Json::array();
  for (auto& t : texts) lines.push_back(t.plain());
  return lines;
}

}  // namespace

Report make_report(const std::vector<RunRecord>& runs, const std::string& title) {
  ReportData data = sort_runs(runs);
  if (data.groups.empty() && data.trainings.empty())
    fail("these runs have nothing to report", plural(runs.size(), "run"), "Choose finished runs: crest runs list.");
  std::vector<std::vector<SettingChange>> setting_changes;
  for (auto& g : data.groups) setting_changes.push_back(find_setting_changes(g));
  Report report;
  Page& page = report.page;
  page.title = title.empty() ? title_of(data) : title;
  page.subtitle = subtitle_of(data);
  add_summary(page, data, setting_changes);
  report.json["title"] = page.title;
  report.json["summary"] = lines_of(page.blocks, 0);
  std::vector<Text> careful = warnings(data);
  for (auto& w : careful) page.blocks.push_back(Warning{w});
  report.json["warnings"] = plain(careful);
  Json groups = Json::array(), advice = Json::array();
  for (size_t i = 0; i < data.groups.size(); ++i) {
    const ReportGroup& g = data.groups[i];
    std::string suffix = data.groups.size() > 1 ? ": " + g.title() : "";
    page.blocks.push_back(Heading{2, "Results" + suffix});
    add_matrix(page, g);
    if (!setting_changes[i].empty()) {
      page.blocks.push_back(Heading{2, "What each setting does" + suffix});
      add_setting_changes(page, g, setting_changes[i]);
      add_sweeps(page, g);
    }
    Json measurements = Json::array(), changes = Json::array();
    for (auto& c : g.measurements) measurements.push_back(to_json(c));
    for (auto& c : setting_changes[i]) changes.push_back(to_json(c));
    auto label = [&](int measurement) {
      return measurement < 0 ? Json(nullptr) : Json(g.measurements[size_t(measurement)].label);
    };
    groups.push_back({{"model", g.model},
                      {"phase", g.phase},
                      {"varying", g.varying},
                      {"fastest", label(g.fastest)},
                      {"smallest", label(g.smallest)},
                      {"noise", g.noise},
                      {"rows", measurements},
                      {"changes", changes}});
  }
  add_training(page, data);
  add_profiles(page, data);
  add_scaling(page, data);
  add_comparisons(page, data);
  std::vector<Text> next;
  for (size_t i = 0; i < data.groups.size(); ++i)
    for (auto& t : recommendations(data.groups[i], setting_changes[i]))
      next.push_back(data.groups.size() > 1 ? Text(data.groups[i].title() + ": ").append(t) : t);
  if (!next.empty()) {
    const bool of_text = std::all_of(runs.begin(), runs.end(), [](auto& r) { return is_result(r); });
    page.blocks.push_back(Heading{2, of_text ? "Recommendations" : "Recommendations for this machine"});
    page.blocks.push_back(Bullets{next});
  }
  report.json["groups"] = groups;
  report.json["recommendations"] = plain(next);
  add_machine(page, data);
  add_commands(page, data);
  add_index(page, data);
  add_terms(page, data);
  Json index = Json::array();
  for (auto& r : runs)
    index.push_back({{"id", r.id}, {"uid", r.uid}, {"name", r.name}, {"kind", r.kind}, {"status", r.status}});
  report.json["runs"] = index;
  page.footer = std::string("Made by crest report, Crest ") + CREST_VERSION +
                ". Every sentence and figure is computed from the runs listed above.";
  return report;
}

}  // namespace crest
