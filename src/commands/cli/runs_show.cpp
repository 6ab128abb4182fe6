#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/terminal_chart.h"
#include "cli/runs_print.h"
#include "core/text.h"
#include "stats/samples.h"
#include "terminal/table.h"

namespace crest {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string scalar(const Json& json) {
  return json.is_string() ? json.get<std::string>()
                          : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A value as people read it; sizes get a unit, by their key.
std::string readable(const std::string& key, const Json& json) {
  bool bytes = key.ends_with("_bytes") || key.find("by_category.") != std::string::npos;
  if (json.is_number() && bytes) return format_bytes(json.get<double>());
  return json.is_number_float() ? fmt::format("{:.6g}", json.get<double>()) : scalar(json);
}

// {"a": {"b": 1}} as "a.b" = "1"; lists stay JSON.
void flatten(const Json& json, const std::string& prefix, Pairs& out, int depth = 0) {
  if (!json.is_object() || depth > 8) {
    if (!json.is_null() && !json.empty()) out.push_back({prefix, readable(prefix, json)});
    return;
  }
  for (auto& [key, value] : json.items()) flatten(value, prefix.empty() ? key : prefix + "." + key, out, depth + 1);
}

Pairs flat(const Json& json) {
  Pairs out;
  flatten(json, "", out);
  return out;
}

std::string heading(const std::string& title, bool color) {
  return color ? "\n\x1b[1m" + title + "\x1b[0m\n" : "\n" + title + "\n";
}

// "  model nano   batch 8 ..." in fitting lines.
std::string paragraph(const Pairs& pairs, int width) {
  std::string out, line;
  for (auto& [key, value] : pairs) {
    if (value.empty()) continue;
    std::string item = valid_utf8(printable(key, 100)) + " " + valid_utf8(printable(value, 600));
    if (!line.empty() && display_width(line) + 3 + display_width(item) > size_t(width)) out += line + "\n", line = "";
    line += (line.empty() ? "  " : "   ") + item;
  }
  return line.empty() ? out : out + line + "\n";
}

std::string section(const std::string& title, const Pairs& pairs, const ShowOptions& o) {
  std::string body = paragraph(pairs, o.width);
  return body.empty() ? "" : heading(title, o.color) + body;
}

std::string head(const RunRecord& r) {
  std::string out = fmt::format("Run {}  {}\n", r.id, valid_utf8(printable(r.name)));
  auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<9} {}\n", key, valid_utf8(printable(value, 4000)));
  };
  add("uid", r.uid);
  add("kind", r.kind + (r.phase.empty() ? "" : ", phase " + r.phase));
  static const std::map<std::string, std::string> meanings = {
      {"lost", "lost: its process ended without a final record"}, {"out_of_memory", "out of memory"}};
  auto meaning = meanings.find(r.status);
  add("status", meaning == meanings.end() ? r.status : meaning->second);
  add("error", r.error);
  add("started", r.started);
  add("finished", r.finished);
  add("command", r.command);
  add("folder", r.folder);
  add("grid", r.grid);
  add("imported", r.imported_from);
  return out;
}

// Values read before and after side by side, then values read once.
std::string environment(const RunRecord& r, const ShowOptions& o) {
  Pairs before = flat(r.environment), after = flat(r.environment_after), once;
  Table table({{"", Align::left}, {"before"}, {"after"}});
  bool both = false;
  for (auto& [key, value] : before) {
    auto other = std::find_if(after.begin(), after.end(), [&, k = &key](auto& p) { return p.first == *k; });
    if (other == after.end() || (other->second == value && value.size() > 24)) {
      once.push_back({key, value});
      continue;
    }
    table.row({"  " + key, fit_width(value, 40), fit_width(other->second, 40)});
    both = true;
  }
  for (auto& [key, value] : after) {
    bool known = std::any_of(before.begin(), before.end(), [&, k = &key](auto& p) { return p.first == *k; });
    if (!known) table.row({"  " + key, "", fit_width(value, 40)}), both = true;
  }
  std::string out = section("Environment", once, o);
  if (both) out += (out.empty() ? heading("Environment", o.color) : "") + table.text(o.color);
  return out;
}

std::string statistics(const std::vector<SampleRow>& samples, const ShowOptions& o) {
  std::vector<std::string> names;
  for (auto& s : samples)
    if (std::find(names.begin(), names.end(), s.contender) == names.end() && names.size() < 50)
      names.push_back(s.contender);
  Table table(
      {{"contender", Align::left}, {"n"}, {"median ms"}, {"95%"}, {"mean"}, {"std"}, {"min"}, {"max"}, {"throttled"}});
  for (auto& name : names) {
    Samples ms;
    int64_t throttled = 0;
    for (auto& s : samples) {
      if (s.contender != name || !std::isfinite(s.ms)) continue;
      ms.add(s.ms);
      throttled += s.throttled;
    }
    double half = ms.median_relative_half_width();
    table.row({name.empty() ? "-" : name, std::to_string(ms.count()), fmt::format("{:.3f}", ms.median()),
               std::isfinite(half) ? fmt::format("+-{:.1f}%", 100 * half) : "-", fmt::format("{:.3f}", ms.mean()),
               fmt::format("{:.3f}", ms.std_dev()), fmt::format("{:.3f}", ms.min()), fmt::format("{:.3f}", ms.max()),
               std::to_string(throttled)});
  }
  return table.text(o.color);
}

std::string all_samples(const std::vector<SampleRow>& samples, const ShowOptions& o) {
  Table table({{"round"}, {"contender", Align::left}, {"ms"}, {"throttled", Align::left}});
  for (auto& s : samples)
    table.row({std::to_string(s.round), s.contender, fmt::format("{:.4f}", s.ms), s.throttled ? "yes" : ""});
  return table.text(o.color);
}

std::string loss_chart(const std::vector<LogRow>& log, const ShowOptions& o) {
  Series train{"train", {}, {}}, val{"validation", {}, {}};
  for (auto& r : log) {
    if (std::isfinite(r.loss)) train.x.push_back(double(r.step)), train.y.push_back(r.loss);
    if (std::isfinite(r.val_loss)) val.x.push_back(double(r.step)), val.y.push_back(r.val_loss);
  }
  std::vector<Series> series;
  for (auto* s : {&train, &val})
    if (s->x.size() > 1) series.push_back(*s);
  if (series.empty()) return "";
  ChartOptions options;
  options.title = "Loss", options.x_label = "step";
  return terminal_chart(series, options, std::min(o.width, 100), 14, o.color);
}

std::string log_tail(const std::vector<LogRow>& log, const ShowOptions& o) {
  constexpr size_t shown = 5;
  Table table({{"step"}, {"loss"}, {"val loss"}, {"lr"}, {"grad norm"}, {"step ms"}, {"tokens/s"}});
  auto cell = [](double x, const char* form) { return std::isfinite(x) ? fmt::format(fmt::runtime(form), x) : ""; };
  for (size_t i = log.size() - std::min(log.size(), shown); i < log.size(); ++i) {
    auto& r = log[i];
    table.row({std::to_string(r.step), cell(r.loss, "{:.4f}"), cell(r.val_loss, "{:.4f}"), cell(r.lr, "{:.3g}"),
               cell(r.grad_norm, "{:.3f}"), cell(r.step_ms, "{:.2f}"), cell(r.tokens_per_second, "{:.0f}")});
  }
  return table.text(o.color);
}

// The measured row without the sections already shown above it.
Pairs result_pairs(const Json& result) {
  Json rest = result;
  if (rest.is_object())
    for (const char* key : {"recipe", "device", "phase"}) rest.erase(key);
  return flat(rest);
}

}  // namespace

std::string show_run(const RunRecord& r, const ShowOptions& o) {
  std::string out = head(r);
  out += section("Recipe", flat(r.recipe), o);
  out += section("Device", flat(r.device), o);
  out += environment(r, o);
  if (!r.samples.empty()) {
    out += heading(fmt::format("Samples ({})", r.samples.size()), o.color);
    out += o.samples ? all_samples(r.samples, o) : statistics(r.samples, o);
  }
  out += section("Result", result_pairs(r.result), o);
  if (!r.log.empty()) {
    out += heading(fmt::format("Log ({} rows)", r.log.size()), o.color);
    out += loss_chart(r.log, o) + log_tail(r.log, o);
  }
  Pairs documents;
  for (auto& [name, json] : r.documents) documents.push_back({name, fmt::format("(--document {})", name)});
  return out + section("Documents", documents, o);
}

}  // namespace crest
