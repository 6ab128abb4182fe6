// Machine and conditions of the runs, how to reproduce them, and a list of runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"

namespace crest {

namespace {

std::string value_text(const std::string& key, const Json& v) {
  if (v.is_null()) return "";
  if (v.is_string()) return v.get<std::string>();
  if (v.is_boolean()) return v.get<bool>() ? "yes" : "no";
  if (v.is_number() && key.size() > 6 && key.ends_with("_bytes"))
    return v.get<double>() > 0 ? say_bytes(v.get<double>()) : "";
  if (v.is_number_float()) return fmt::format("{:.6g}", v.get<double>());
  if (v.is_array()) {
    std::vector<std::string> parts;
    for (auto& x : v) parts.push_back(value_text("", x));
    return join(parts, " ");
  }
  return v.dump(-1, ' ', false, Json::error_handler_t::replace);
}

using Properties = std::vector<std::pair<std::string, std::string>>;

// Constant properties of a running machine.
Properties machine_properties(const RunRecord& r) {
  static const std::set<std::string> changing = {"load_average", "time_utc", "memory_available_bytes",
                                                 "conditions",   "host_id",  "libraries"};
  Properties properties;
  auto add = [&](const Json& json, const std::string& prefix) {
    if (!json.is_object()) return;
    for (auto& [key, value] : json.items()) {
      std::string text = changing.count(key) ? "" : value_text(key, value);
      std::string label = spaced(key.size() > 6 && key.ends_with("_bytes") ? key.substr(0, key.size() - 6) : key);
      if (!text.empty()) properties.push_back({prefix + label, text});
    }
  };
  Json device = r.device;
  // On a CPU, this is the memory free during the run.
  if (json_text(device, "/kind") == "cpu") device.erase("memory_bytes");
  add(device, "device: ");
  add(r.environment, "");
  if (r.environment.is_object() && r.environment.contains("libraries")) add(r.environment["libraries"], "library: ");
  return properties;
}

std::string pair_text(const RunRecord& r, const std::string& path, const char* unit, int digits = 0) {
  double before = json_number(r.environment, "/conditions" + path),
         after = json_number(r.environment_after, "/conditions" + path);
  auto say = [&](double v) { return std::isfinite(v) ? fmt::format("{:.{}f}", v, digits) : std::string("-"); };
  if (!std::isfinite(before) && !std::isfinite(after)) return "";
  if (say(before) == say(after) || !std::isfinite(after)) return say(before) + unit;
  return say(before) + " → " + say(after) + unit;
}

void add_conditions(Page& page, const std::vector<RunRecord>& runs) {
  struct Condition {
    std::string header, path;
    const char* unit;
    int digits;
  };
  static const std::vector<Condition> all = {
      {"CPU clock", "/cpu_mhz", " MHz", 0},       {"CPU temperature", "/cpu_temperature_c", " °C", 0},
      {"GPU clock", "/gpu/sm_mhz", " MHz", 0},    {"GPU memory clock", "/gpu/memory_mhz", " MHz", 0},
      {"GPU power", "/gpu/power_watts", " W", 0}, {"GPU temperature", "/gpu/temperature_c", " °C", 0},
      {"load average", "/load_average", "", 2},   {"other load, CPUs", "/other_load", "", 2}};
  PageTable t;
  t.columns = {{"run", Align::left}};
  std::vector<const Condition*> used;
  for (auto& c : all)
    if (std::any_of(runs.begin(), runs.end(),
                    [&](auto& r) { return !pair_text(r, c.path, c.unit, c.digits).empty(); })) {
      used.push_back(&c);
      t.columns.push_back({c.header});
    }
  t.columns.push_back({"throttled samples"});
  if (used.empty()) return;
  for (auto& r : runs) {
    std::vector<PageCell> row = {r.id ? fmt::format("{} {}", r.id, r.name) : r.name};
    for (auto* c : used) row.push_back(pair_text(r, c->path, c->unit, c->digits));
    size_t throttled = size_t(std::count_if(r.samples.begin(), r.samples.end(), [](auto& s) { return s.throttled; }));
    row.push_back(r.samples.empty() ? "" : fmt::format("{} of {}", throttled, r.samples.size()));
    t.rows.push_back(row);
  }
  t.folded = true;
  t.summary = "Conditions before → after each run";
  page.blocks.push_back(t);
}

}  // namespace

void add_machine(Page& page, const ReportData& data) {
  // Distinct machines, each with its runs.
  std::vector<std::pair<Properties, std::vector<std::string>>> machines;
  for (auto& r : *data.runs) {
    Properties properties = machine_properties(r);
    if (properties.empty()) continue;
    auto it = std::find_if(machines.begin(), machines.end(), [&](auto& m) { return m.first == properties; });
    if (it == machines.end()) it = machines.insert(machines.end(), {properties, {}});
    it->second.push_back(r.name);
  }
  page.blocks.push_back(Heading{2, "Machine and software"});
  if (machines.empty()) {
    page.blocks.push_back(Paragraph{"The machine was not recorded."});
    return;
  }
  PageTable t;
  t.columns = {{"", Align::left}};
  std::vector<std::string> keys;
  for (size_t i = 0; i < machines.size(); ++i) {
    t.columns.push_back({machines.size() == 1 ? "all runs" : plural(machines[i].second.size(), "run"), Align::left});
    for (auto& [key, value] : machines[i].first)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  for (auto& key : keys) {
    std::vector<PageCell> row = {key};
    std::set<std::string> values;
    for (auto& [properties, runs] : machines) {
      auto it = std::find_if(properties.begin(), properties.end(), [&](auto& f) { return f.first == key; });
      row.push_back(it == properties.end() ? "-" : it->second);
      values.insert(row.back().text);
    }
    row[0].look = Look::soft;
    if (values.size() > 1)
      for (size_t i = 1; i < row.size(); ++i) row[i].look = Look::best;
    t.rows.push_back(row);
  }
  t.compact = true;
  if (machines.size() > 1) t.note = "Differences are in bold.";
  page.blocks.push_back(t);
  add_conditions(page, *data.runs);
}

void add_commands(Page& page, const ReportData& data) {
  Commands c;
  for (auto& r : *data.runs)
    if (!r.command.empty() && std::find(c.lines.begin(), c.lines.end(), r.command) == c.lines.end())
      c.lines.push_back(r.command);
  if (c.lines.empty()) return;
  std::set<std::string> versions;
  for (auto& r : *data.runs)
    if (std::string v = json_text(r.environment, "/crest_version"); !v.empty()) versions.insert(v);
  page.blocks.push_back(Heading{2, "Reproduce"});
  Text t("The commands behind the runs");
  if (!versions.empty()) t.add(", with Crest " + say_list({versions.begin(), versions.end()}));
  page.blocks.push_back(Paragraph{t.add(":")});
  page.blocks.push_back(c);
}

void add_index(Page& page, const ReportData& data) {
  page.blocks.push_back(Heading{2, "Runs"});
  PageTable t;
  t.columns = {
      {"id"},     {"name", Align::left}, {"kind", Align::left}, {"status", Align::left}, {"started (UTC)", Align::left},
      {"samples"}};
  // Runs of an export have no id here: only the uid names them everywhere.
  const bool uids = std::any_of(data.runs->begin(), data.runs->end(), [](auto& r) { return r.id == 0; });
  if (uids) t.columns.push_back({"uid", Align::left});
  for (auto& r : *data.runs) {
    t.rows.push_back({r.id ? std::to_string(r.id) : "", shown_name(r), r.kind, spaced(r.status),
                      r.started.substr(0, 16), std::to_string(r.samples.empty() ? r.log.size() : r.samples.size())});
    if (uids) t.rows.back().push_back(r.uid);
  }
  page.blocks.push_back(t);
}

void add_terms(Page& page, const ReportData& data) {
  page.blocks.push_back(Heading{2, "Terms"});
  Bullets b;
  b.items.push_back(Text()
                        .strong("Median and interval")
                        .add(": the median of all samples; its 95% interval comes from order statistics and needs six "
                             "samples. Deviation: the standard deviation of the samples (n - 1)."));
  b.items.push_back(
      Text()
          .strong("Within noise")
          .add(": the bootstrap interval of the ratio of the two medians includes 1, or the difference is within the "
               "noise "
               "floor: at least 1%, or the difference between repeated runs or between the halves of one run."));
  b.items.push_back(Text().strong("Faster").add(
      ": more tokens per second. 25% faster means 1.25 times the tokens in the same time."));
  b.items.push_back(
      Text()
          .strong("Planned memory")
          .add(
              ": the bytes of all arenas, known before a step runs. The peak on the device is for the whole process."));
  if (std::any_of(data.groups.begin(), data.groups.end(), [](auto& g) {
        return std::any_of(g.measurements.begin(), g.measurements.end(), [](auto& c) { return std::isfinite(c.mfu); });
      })) {
    Text t;
    t.strong("MFU").add(": model FLOPs per second over the peak");
    for (auto& g : data.groups)
      for (auto& c : g.measurements)
        if (std::string said = json_text(c.timed->result, "/flops_convention"); !said.empty()) {
          b.items.push_back(t.add(": " + said + "."));
          page.blocks.push_back(b);
          return;
        }
    b.items.push_back(t.add("."));
  }
  page.blocks.push_back(b);
}

}  // namespace crest
