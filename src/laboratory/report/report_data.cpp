#include "report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "compare/compare.h"
#include "core/error.h"
#include "core/text.h"
#include "plan/automatic.h"
#include "report/phrases.h"
#include "store/step_times.h"
#include "train/training_settings.h"

namespace crest {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

const Json* at_path(const Json& json, const std::string& path) {
  const Json* at = &json;
  for (auto& key : split(path.substr(1), '/')) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<NamedValue> settings_of(const RunRecord& run) {
  std::vector<NamedValue> all;
  int64_t ranks = 1;
  if (run.recipe.is_object()) {
    if (double n = json_number(run.recipe, "/ranks"); n > 1) ranks = int64_t(n);
    for (auto& [key, value] : run.recipe.items()) {
      if (key == "ranks") continue;
      // Leaves out training settings: a learning rate does not change the cost of a step.
      const Setting* setting = find_run_setting(key);
      if (key != "model" && key != "data_hash" && (!setting || setting->identity)) all.push_back({key, text_of(value)});
    }
    // Older records and records of other programs lack this setting.
    if (run.recipe.contains("data_parallel")) all.push_back({"ranks", std::to_string(ranks)});
  }
  if (const Json* v = at_path(run.device, "/name"); v && !v->is_null()) all.push_back({"device", text_of(*v)});
  // A record has the threads of one rank. The total stays the same when ranks share a machine.
  if (const Json* v = at_path(run.device, "/threads"); v && v->is_number_integer())
    all.push_back({"threads", std::to_string(v->get<int64_t>() * ranks)});
  if (std::string v = json_text(run.environment, "/crest_version"); !v.empty()) all.push_back({"crest", v});
  if (const Json* libraries = at_path(run.environment, "/libraries"); libraries && libraries->is_object())
    for (auto& [key, value] : libraries->items()) all.push_back({key, text_of(value)});
  if (!run.recipe.is_object()) all.push_back({"run", run.name});
  return all;
}

bool has_times(const RunRecord& r) {
  return !r.samples.empty() || std::isfinite(json_number(r.result, "/step_ms_median"));
}

void read_times(ReportMeasurement& c) {
  const RunRecord& r = *c.timed;
  c.ms = Samples(step_times(r));
  for (auto& s : r.samples) c.throttled += s.contender != "a again" && s.throttled;
  if (c.ms.empty() && c.profile)
    for (double ms : c.profile->step_ms)
      if (std::isfinite(ms)) c.ms.add(ms);
  if (!c.ms.empty()) {
    c.mean = c.ms.mean(), c.deviation = c.ms.std_dev(), c.median = c.ms.median();
    if (Interval i = c.ms.median_interval(); std::isfinite(i.low) && std::isfinite(i.high)) c.interval = i;
  } else {
    c.mean = json_number(r.result, "/step_ms_mean");
    c.deviation = json_number(r.result, "/step_ms_std");
    c.median = json_number(r.result, "/step_ms_median");
  }
  double tokens = tokens_per_step(r.recipe);
  if (r.phase.starts_with("forward"))  // one micro step
    if (double steps = json_number(r.recipe, "/grad_accumulation"); steps > 0) tokens /= steps;
  if (r.phase == "decode") tokens = 1;
  if (c.profile && c.profile->tokens > 0) tokens = double(c.profile->tokens);
  if (!std::isfinite(tokens))
    tokens = json_number(r.result, "/tokens_per_second") * json_number(r.result, "/step_ms_median") / 1e3;
  c.tokens = tokens;
  c.tokens_per_second = 1e3 * tokens / c.median;
  c.mfu = json_number(r.result, "/mfu");
}

void read_memory(ReportMeasurement& c) {
  const Json& result = c.timed->result;
  c.planned_bytes = json_number(result, "/memory/planned_bytes");
  c.measured_bytes = json_number(result, "/memory/measured_peak_bytes");
  c.device_bytes = json_number(result, "/memory/device_peak_bytes");
  // In the row of a bench, or the plan of a profile.
  const Json* parts = at_path(result, "/memory/by_category");
  for (auto* r : c.runs)
    if (auto plan = r->documents.find("plan"); !parts && plan != r->documents.end())
      parts = at_path(plan->second, "/memory/by_category");
  if (parts && parts->is_object())
    for (auto& [key, value] : parts->items())
      if (value.is_number()) c.categories.push_back({key, value.get<double>()});
  if (!c.profile) return;
  const ProfileMemory& m = c.profile->memory;
  auto fill = [](double& to, int64_t from) {
    if (!std::isfinite(to) && from > 0) to = double(from);
  };
  fill(c.planned_bytes, m.planned_bytes);
  fill(c.measured_bytes, m.measured_peak_bytes);
  fill(c.device_bytes, m.device_peak_bytes);
}

void finish(ReportMeasurement& c) {
  std::stable_sort(c.runs.begin(), c.runs.end(), [](auto* a, auto* b) { return a->started > b->started; });
  for (auto* r : c.runs) {
    if (!c.profiled && r->documents.count("profile")) c.profiled = r;
    bool better =
        !c.timed || (has_times(*r) && (!has_times(*c.timed) || (r->kind == "bench" && c.timed->kind != "bench")));
    if (better) c.timed = r;
  }
  if (c.profiled) try {
      c.profile = std::make_shared<const Profile>(
          profile_from_json(c.profiled->documents.at("profile"), "profile of run " + c.profiled->name));
    } catch (const Error& error) {  // one damaged document must not prevent the report
      c.unread_profile = c.profiled->name + ": " + error.problem();
      c.profiled = nullptr;
    }
  c.out_of_memory = c.timed->status == "out_of_memory" || json_text(c.timed->result, "/error") == "out_of_memory";
  read_times(c);
  read_memory(c);
}

// "A", "B", ... "Z", "AA".
std::string letter(size_t i) { return (i < 26 ? std::string() : letter(i / 26 - 1)) + char('A' + i % 26); }

constexpr size_t longest_label = 44;  // shown in full in a figure
constexpr size_t most_settings_in_label = 3;

// Labels are given names, or the differing settings. Long labels get a letter. Sorts by the
// differing settings.
void name_measurements(ReportGroup& g) {
  std::set<std::string> given;
  for (auto& c : g.measurements)
    if (has_given_name(*c.timed) && c.timed->name.size() <= longest_label) given.insert(c.timed->name);
  size_t longest = 0;
  for (auto& c : g.measurements) {
    std::vector<std::string> parts;
    for (auto& name : g.varying)
      if (std::string value = c.setting(name); !value.empty()) parts.push_back(setting_label({name, value}));
    bool named = given.size() == g.measurements.size() || parts.empty() || !c.timed->recipe.is_object();
    c.label = c.short_label = named ? c.timed->name : join(parts, ", ");
    if (!named) longest = std::max(longest, c.label.size());
  }
  g.lettered = longest > longest_label && g.measurements.size() > 1;
  if (g.lettered) {  // in measured order, the order of a ladder
    // Imported tables may have letters of their own.
    const bool numbers =
        std::any_of(g.measurements.begin(), g.measurements.end(), [](auto& c) { return is_result(*c.timed); });
    for (size_t i = 0; i < g.measurements.size(); ++i) {
      ReportMeasurement& c = g.measurements[i];
      c.short_label = numbers ? std::to_string(i + 1) : letter(i);
      c.label = c.short_label + " (" + c.label + ")";
    }
    return;
  }
  std::stable_sort(g.measurements.begin(), g.measurements.end(),
                   [&](const ReportMeasurement& a, const ReportMeasurement& b) {
                     for (auto& name : g.varying) {
                       std::string x = a.setting(name), y = b.setting(name);
                       if (x != y) return before(name, x, y);
                     }
                     return false;
                   });
}

// Finds the differing settings of the measurements, in order.
void find_varying(ReportGroup& g) {
  std::vector<std::string> names;
  std::map<std::string, std::set<std::string>> values;
  for (auto& c : g.measurements)
    for (auto& [name, value] : c.settings)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  // Peers and imported logs lack settings. A missing setting does not count as varying.
  for (auto& c : g.measurements)
    for (auto& [name, value] : c.settings) values[name].insert(value);
  for (auto& name : names) {
    if (values[name].size() <= 1 || name == "run") continue;
    bool follows = std::all_of(g.measurements.begin(), g.measurements.end(), [&](auto& c) {
      return c.setting(name).empty() || std::find(c.automatic.begin(), c.automatic.end(), name) != c.automatic.end();
    });
    (follows ? g.following : g.varying).push_back(name);
  }
  // The best-known settings first, sizes last.
  auto rank = [](const std::string& name) {
    static const char* const order[] = {"precision", "policy", "attention", "fusion", "recompute"};
    for (int i = 0; i < 5; ++i)
      if (name == order[i]) return i;
    return name == "batch" || name == "seq" ? 7 : 6;
  };
  std::stable_sort(g.varying.begin(), g.varying.end(), [&](auto& a, auto& b) { return rank(a) < rank(b); });
  name_measurements(g);
}

// Noise: how much the medians of repeated runs differ, or of the two halves of a run.
void find_noise(ReportGroup& g) {
  for (auto& c : g.measurements) {
    std::vector<double> medians;
    for (auto* r : c.runs) {
      if (r->kind != c.timed->kind) continue;  // profile and bench measure differently
      Samples s;
      for (auto& row : r->samples)
        if (row.contender.empty() && std::isfinite(row.ms)) s.add(row.ms);
      if (s.count() >= 6) medians.push_back(s.median());
    }
    auto [low, high] = std::minmax_element(medians.begin(), medians.end());
    if (medians.size() > 1 && *high / *low - 1 > g.noise) {
      g.noise = *high / *low - 1;
      g.noise_source = fmt::format("{} runs of the same recipe ({}) differ by that much", medians.size(), c.label);
    }
    for (auto* r : c.runs) {
      double floor = rounds_floor(*r);
      if (!(floor > g.noise)) continue;
      g.noise = floor,
      g.noise_source = fmt::format("one recipe ({}) measured against itself differs by that much", c.label);
    }
    const auto& v = c.ms.values();
    if (v.size() < 12 || rounds_floor(*c.timed) >= 0) continue;  // drift affects all contenders of a round
    auto half = v.begin() + ptrdiff_t(v.size() / 2);
    double a = Samples({v.begin(), half}).median(), b = Samples({half, v.end()}).median();
    double drift = std::max(a, b) / std::min(a, b) - 1;
    if (drift > g.noise) {
      g.noise = drift;
      g.noise_source = fmt::format("the first and second half of a run ({}) differ by that much", c.label);
    }
  }
}

void rank(ReportGroup& g) {
  std::set<std::string> work;
  for (size_t i = 0; i < g.measurements.size(); ++i) {
    const ReportMeasurement& c = g.measurements[i];
    work.insert(c.setting("batch") + "x" + c.setting("seq") + "x" + c.setting("grad_accumulation") + "x" +
                c.setting("ranks") + "x" + c.setting("data_parallel"));
    if (c.measured()) {
      if (g.fastest < 0 || c.speed() > g.measurements[size_t(g.fastest)].speed()) g.fastest = int(i);
      if (g.slowest < 0 || c.speed() < g.measurements[size_t(g.slowest)].speed()) g.slowest = int(i);
    }
    if (c.measured() && std::isfinite(c.planned_bytes) &&
        (g.smallest < 0 || c.planned_bytes < g.measurements[size_t(g.smallest)].planned_bytes))
      g.smallest = int(i);
  }
  g.same_tokens = work.size() <= 1;
}

}  // namespace

ReportMeasurement::ReportMeasurement()
    : mean(nan),
      deviation(nan),
      median(nan),
      interval{nan, nan},
      tokens(nan),
      tokens_per_second(nan),
      mfu(nan),
      planned_bytes(nan),
      measured_bytes(nan),
      device_bytes(nan) {}

bool ReportMeasurement::measured() const { return !out_of_memory && median > 0; }
double ReportMeasurement::speed() const { return std::isfinite(tokens_per_second) ? tokens_per_second : 1e3 / median; }

double ReportMeasurement::spread() const {
  double half = (interval.high - interval.low) / 2 / median;
  return std::isfinite(half) ? half : std::numeric_limits<double>::infinity();
}

std::string ReportMeasurement::setting(const std::string& name) const {
  for (auto& [key, value] : settings)
    if (key == name) return value;
  return "";
}

std::string ReportGroup::title() const {
  std::string what = say_phase(phase);
  return model.empty() ? what : model + ", " + what;
}

double json_number(const Json& json, const std::string& path) {
  const Json* v = at_path(json, path);
  return v && v->is_number() ? v->get<double>() : nan;
}

bool was_busy(const RunRecord& r) {
  return other_load(r) >= std::max(0.5, 0.02 * json_number(r.environment, "/cores_online"));
}

double tokens_per_step(const Json& recipe) {
  double tokens = json_number(recipe, "/batch") * json_number(recipe, "/seq");
  for (const char* key : {"/grad_accumulation", "/ranks", "/data_parallel"})
    if (double n = json_number(recipe, key); std::isfinite(n)) tokens *= n;
  return tokens;
}

std::string json_text(const Json& json, const std::string& path) {
  const Json* v = at_path(json, path);
  return v && v->is_string() ? v->get<std::string>() : "";
}

std::vector<std::string> json_texts(const Json& json, const std::string& path) {
  std::vector<std::string> texts;
  if (const Json* v = at_path(json, path); v && v->is_array())
    for (auto& text : *v)
      if (text.is_string()) texts.push_back(text.get<std::string>());
  return texts;
}

std::string setting_label(const NamedValue& setting) {
  auto& [name, value] = setting;
  for (const char* tells_itself : {"precision", "device", "run", "model", "variant", "phase"})
    if (name == tells_itself) return value;
  if (name == "attention") return value + " attention";
  std::string words = name;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words + " " + short_value(value);
}

std::string short_value(const std::string& value) {
  const bool whole = value.find_first_of(".eE") == std::string::npos;
  return whole || !is_number(value) ? value : fmt::format("{:.4g}", std::strtod(value.c_str(), nullptr));
}

bool is_number(const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && std::isfinite(value);
}

bool before(const std::string& setting, const std::string& a, const std::string& b) {
  static const std::map<std::string, std::vector<std::string>> orders = {
      {"precision", {"fp32", "tf32", "fp16", "bf16", "fp8"}},
      {"policy", {"autocast", "pure"}},
      {"attention", {"naive", "flash"}},
      {"fusion", {"off", "on"}},
      {"recompute", {"none", "pointwise", "activation", "selective", "full"}},
  };
  if (auto it = orders.find(setting); it != orders.end()) {
    auto place = [&](const std::string& v) { return std::find(it->second.begin(), it->second.end(), v); };
    if (place(a) != place(b)) return place(a) < place(b);
  }
  if (is_number(a) && is_number(b)) return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr);
  return a < b;
}

bool has_given_name(const RunRecord& r) {
  std::string made = r.kind + "-" + json_text(r.recipe, "/model");
  return !r.name.empty() && !r.name.starts_with(made);
}

bool is_result(const RunRecord& r) { return r.kind == "log" && r.log.empty(); }

std::string shown_name(const RunRecord& r) {
  return has_given_name(r) || r.folder.empty() ? r.name : r.folder.substr(r.folder.find_last_of('/') + 1);
}

Reached reached(const RunRecord& r) {
  Reached x;
  bool diverged = false;
  for (auto& row : r.log) {
    x.steps = std::max(x.steps, row.step);
    x.skipped += row.skipped;
    const bool timed = row.step_ms > 0 && std::isfinite(row.step_ms);
    if (timed || std::isfinite(row.loss)) x.loss = row.loss, diverged = !std::isfinite(row.loss);
    if (timed && r.kind == "train") x.seconds += row.step_ms / 1e3;
    if (!std::isfinite(row.val_loss)) continue;
    x.val_loss = row.val_loss;
    x.lowest_val_loss = std::isfinite(x.lowest_val_loss) ? std::min(x.lowest_val_loss, row.val_loss) : row.val_loss;
  }
  if (diverged) x.val_loss = NAN;
  Samples ms(step_times(r));
  if (!ms.empty()) x.step_ms = ms.median();
  if (double rate = logged_rate(r); rate > 0) x.tokens_per_second = rate;
  return x;
}

std::string data_name(const RunRecord& r) {
  if (const Json* mixture = at_path(r.recipe, "/data"); mixture && mixture->is_array()) {
    std::vector<std::string> names;
    for (auto& source : *mixture) {
      const std::string text = text_of(source);
      names.push_back(text.substr(text.find_last_of('/') + 1));
    }
    return join(names, " + ");
  }
  const std::string data = json_text(r.recipe, "/data"), name = data.substr(data.find_last_of('/') + 1);
  if (data == "-") return "stream";
  if (name.size() != 16 || name.find_first_not_of("0123456789abcdef") != std::string::npos) return name;
  // Prepared text in the cache, in a folder named by a hash: the command names the text.
  const std::string before = " train ";
  const size_t at = r.command.find(before);
  if (at == std::string::npos) return "text";
  std::string text = r.command.substr(at + before.size());
  const bool quoted = text.starts_with("'");  // a name with spaces
  text = quoted ? text.substr(1, text.find('\'', 1) - 1) : text.substr(0, text.find(' '));
  return text.empty() || text.starts_with("-") ? "text" : text.substr(text.find_last_of('/') + 1);
}

std::vector<std::string> training_labels(const std::vector<const RunRecord*>& runs) {
  std::vector<std::string> labels(runs.size());
  if (runs.empty()) return labels;
  auto different = [&](const std::vector<std::string>& texts) {
    std::set<std::string> all(texts.begin(), texts.end());
    return all.size() == texts.size() && !all.contains("");
  };
  // Adds a text to every label, if the texts differ, until all labels do.
  auto add_to = [&](std::vector<std::string>& to, auto text_of_run) {
    std::vector<std::string> texts;
    for (auto* r : runs) texts.push_back(text_of_run(*r));
    if (different(to) || std::set<std::string>(texts.begin(), texts.end()).size() == 1) return false;
    for (size_t i = 0; i < runs.size(); ++i) to[i] += (to[i].empty() || texts[i].empty() ? "" : ", ") + texts[i];
    return true;
  };
  auto add = [&](auto text_of_run) { add_to(labels, text_of_run); };
  const bool given = std::all_of(runs.begin(), runs.end(), [](auto* r) { return has_given_name(*r); });
  if (given) add([](const RunRecord& r) { return r.name; });
  std::vector<std::string> keys = {"model", "data", "lr", "optimizer", "batch"};
  for (auto* r : runs)
    if (r->recipe.is_object())
      for (auto& [key, value] : r->recipe.items())
        if (std::find(keys.begin(), keys.end(), key) == keys.end() && key != "data_hash") keys.push_back(key);
  std::vector<std::string> settings = labels;
  size_t used = 0;
  for (auto& key : keys)
    used += add_to(settings, [&](const RunRecord& r) -> std::string {
      const Json* value = at_path(r.recipe, "/" + key);
      std::vector<std::string> automatic;
      if (r.recipe.is_object()) automatic = automatic_settings(r.recipe, r.device);
      if (!value || value->is_structured() || std::find(automatic.begin(), automatic.end(), key) != automatic.end())
        return "";
      std::string text = value->is_null() ? "" : text_of(*value);
      return text.empty() ? "" : key == "data" ? data_name(r) : setting_label({key, text});
    });
  // A few settings tell runs of a sweep apart. Unrelated runs differ in many: their names say more.
  size_t differ = 0;
  for (auto& key : keys) {
    static const std::set<std::string> following = {"min_lr", "warmup", "val_every", "save_every", "sample_every"};
    std::set<std::string> values;
    for (auto* r : runs) {
      const Json* value = at_path(r->recipe, "/" + key);
      values.insert(value && value->is_primitive() && !value->is_null() ? text_of(*value) : "");
    }
    differ += values.size() > 1 && !following.contains(key);
  }
  const bool short_enough = std::all_of(settings.begin(), settings.end(),
                                        [](auto& label) { return !label.empty() && label.size() <= longest_label; });
  if (std::max(used, differ) <= most_settings_in_label && different(settings) && short_enough)
    labels = settings;
  else
    add([&](const RunRecord& r) { return given ? r.folder.substr(r.folder.find_last_of('/') + 1) : shown_name(r); });
  for (size_t i = 0; i < runs.size(); ++i)
    if (labels[i].empty()) labels[i] = shown_name(*runs[i]);
  add([](const RunRecord& r) { return r.id ? fmt::format("run {}", r.id) : r.uid; });
  for (size_t i = 0; !different(labels) && i < runs.size(); ++i) labels[i] += fmt::format(", number {}", i + 1);
  return labels;
}

ReportData sort_runs(const std::vector<RunRecord>& runs) {
  ReportData data;
  data.runs = &runs;
  std::map<std::pair<std::string, std::string>, size_t> groups;
  std::map<std::string, std::string> models;  // by grid: a peer has its grid's model
  for (auto& run : runs)
    if (std::string model = json_text(run.recipe, "/model"); !run.grid.empty() && !model.empty())
      models[run.grid] = model;
  for (auto& run : runs) {
    bool oom = run.status == "out_of_memory" || json_text(run.result, "/error") == "out_of_memory";
    if (!run.log.empty()) {
      data.trainings.push_back(&run);
    } else if (run.kind == "comm" || run.kind == "experiment" || run.kind == "gemm") {
      data.others.push_back(&run);  // not steps of a model; crest report --lab covers experiments
    } else if (oom || has_times(run) || run.documents.count("profile")) {
      std::string model = json_text(run.recipe, "/model");
      if (model.empty() && models.count(run.grid)) model = models[run.grid];
      auto [it, fresh] = groups.insert({{model, run.phase}, data.groups.size()});
      if (fresh) data.groups.push_back({});
      ReportGroup& g = data.groups[it->second];
      g.model = model, g.phase = run.phase;
      std::vector<NamedValue> settings = settings_of(run);
      auto measurement =
          std::find_if(g.measurements.begin(), g.measurements.end(), [&](auto& c) { return c.settings == settings; });
      if (measurement == g.measurements.end()) {
        g.measurements.emplace_back();
        measurement = g.measurements.end() - 1;
        measurement->settings = settings;
        if (run.recipe.is_object()) measurement->automatic = automatic_settings(run.recipe, run.device);
      }
      measurement->runs.push_back(&run);
    } else {
      data.others.push_back(&run);
    }
  }
  for (auto& g : data.groups) {
    for (auto& c : g.measurements) finish(c);
    find_varying(g);
    find_noise(g);
    rank(g);
  }
  return data;
}

}  // namespace crest
