#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/recipe_json.h"
#include "core/text.h"
#include "report/table.h"

namespace crest {

using Json = nlohmann::ordered_json;

double BenchRow::mfu() const {
  return peak.flops_per_second > 0 ? model_flops_per_second() / peak.flops_per_second : NAN;
}

namespace {

void add_times(Json& json, const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  json["step_ms_mean"] = ms.mean();
  json["step_ms_std"] = ms.std_dev();
  json["step_ms_median"] = ms.median();
  json["step_ms_min"] = ms.min();
  json["step_ms_max"] = ms.max();
  json["samples"] = ms.count();
}

std::string peak_text(const BenchPeak& peak) {
  return fmt::format("mfu against {} ({})", format_si(peak.flops_per_second, "FLOP/s"), peak.source);
}

// +- half the 95% interval of the median; fewer than six samples have none.
std::string interval_text(const Samples& s) {
  double width = s.median_relative_half_width();
  return std::isfinite(width) ? fmt::format("+-{:.1f}%", 100 * width) : std::string("-");
}

std::vector<std::string> time_cells(const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  return {fmt::format("{:.2f}", ms.median()), interval_text(ms), fmt::format("{:.2f}", ms.min()),
          fmt::format("{:.2f}", ms.max()), std::to_string(ms.count())};
}

}  // namespace

Json to_json(const BenchRow& row) {
  Json json = {{"recipe", recipe_to_json(row.recipe)}, {"device", row.device}, {"phase", name(row.phase)}};
  Json memory = {{"planned_bytes", row.planned}};
  if (row.out_of_memory) {
    json["error"] = "out_of_memory";
  } else {
    add_times(json, row.seconds);
    json["tokens_per_second"] = row.tokens_per_second();
    json["model_tflops"] = row.model_flops_per_second() / 1e12;
    json["mfu"] = std::isfinite(row.mfu()) ? Json(row.mfu()) : Json(nullptr);
    json["flops_convention"] =
        row.convention + (row.peak.flops_per_second > 0 ? "; " + peak_text(row.peak) : std::string());
    memory["measured_peak_bytes"] = row.held;
    memory["device_peak_bytes"] = row.device_peak;
  }
  memory["by_category"] = categories_to_json(row.by_category);
  json["memory"] = memory;
  return json;
}

Json to_json(const AbResult& result) {
  const Comparison& c = result.comparisons.at(0);
  return {{"a", c.a},
          {"b", c.b},
          {"ratio", c.ratio},
          {"ratio_low", c.ratio_interval.low},
          {"ratio_high", c.ratio_interval.high},
          {"verdict", name(c.verdict)},
          {"noise_floor", result.noise_floor},
          {"rounds", result.rounds},
          {"sentence", describe(c, result.noise_floor)}};
}

Json peer_to_json(const std::string& command, const Samples& seconds) {
  Json json = {{"peer", command}};
  add_times(json, seconds);
  return json;
}

std::string text_of(const std::vector<BenchRow>& rows, const std::vector<std::pair<std::string, Samples>>& peers,
                    bool color) {
  Table table({{"phase", Align::left},
               {"precision", Align::left},
               {"attention", Align::left},
               {"fusion", Align::left},
               {"recompute", Align::left},
               {"batch"},
               {"seq"},
               {"ms (median)"},
               {"95%"},
               {"min"},
               {"max"},
               {"n"},
               {"tokens/s"},
               {"TFLOP/s"},
               {"MFU"},
               {"planned"},
               {"held"},
               {"process peak"}});
  std::vector<std::string> notes;
  auto note = [&](const std::string& text) {
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
  };
  for (auto& r : rows) {
    std::vector<std::string> cells = {name(r.phase),
                                      r.recipe.precision,
                                      r.recipe.attention,
                                      r.recipe.fusion,
                                      r.recipe.recompute,
                                      std::to_string(r.recipe.batch),
                                      std::to_string(r.recipe.seq_length())};
    if (r.out_of_memory) {
      for (const char* c : {"out of memory", "", "", "", "", "", "", ""}) cells.push_back(c);
      cells.push_back(format_bytes(double(r.planned)));
      table.row(cells);
      continue;
    }
    for (auto& c : time_cells(r.seconds)) cells.push_back(c);
    cells.push_back(fmt::format("{:.0f}", r.tokens_per_second()));
    cells.push_back(fmt::format("{:.4g}", r.model_flops_per_second() / 1e12));
    cells.push_back(std::isfinite(r.mfu()) ? fmt::format("{:.1f}%", 100 * r.mfu()) : "-");
    for (int64_t b : {r.planned, r.held, r.device_peak}) cells.push_back(format_bytes(double(b)));
    table.row(cells);
    note(fmt::format("TFLOP/s of {}: {}", name(r.phase), r.convention));
    if (r.peak.flops_per_second > 0) note(fmt::format("{}: {}", r.recipe.precision, peak_text(r.peak)));
  }
  for (auto& [command, seconds] : peers) {
    std::vector<std::string> cells = {"peer", "", "", "", "", "", ""};
    for (auto& c : time_cells(seconds)) cells.push_back(c);
    table.row(cells);
    note("peer: " + printable(command));
  }
  std::string text = table.text(color);
  for (auto& n : notes) text += "\n" + n;
  return text + "\n";
}

}  // namespace crest
