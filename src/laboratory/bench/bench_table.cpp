// The table of crest bench, and its sentences about a grid.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/bench_report.h"
#include "core/text.h"
#include "device/conditions.h"
#include "plan/automatic.h"
#include "stats/noise.h"
#include "store/record.h"
#include "terminal/fit_table.h"
#include "train/training_settings.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

// A table cell: strings as they are, numbers and lists as JSON.
std::string text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

double number(const Json& row, const char* key) {
  auto it = row.find(key);
  return it != row.end() && it->is_number() ? it->get<double>() : NAN;
}

bool has_times(const Json& row) { return row.contains("step_ms_median"); }
bool is_peer(const Json& row) { return row.contains("peer"); }

// The settings of a row, by name.
std::map<std::string, std::string> settings_of(const Json& row) {
  std::map<std::string, std::string> settings;
  if (is_peer(row)) return settings;
  for (auto& [key, value] : row["recipe"].items()) {
    const Setting* setting = find_run_setting(key);
    if (!setting || setting->identity) settings[key] = text(value);
  }
  settings["device"] = text(row["device"]);
  return settings;
}

// The settings that differ between rows, in recipe order, the device last. Settings that follow
// from others in every row are left out.
std::vector<std::string> varied(const std::vector<Json>& rows) {
  std::vector<std::string> order, result;
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, size_t> follows;
  size_t recipes = 0;
  for (auto& row : rows) {
    for (auto& [key, value] : settings_of(row)) values[key].insert(value);
    if (is_peer(row)) continue;
    ++recipes;
    for (auto& key : automatic_settings(row["recipe"], row["device"])) ++follows[key];
    if (order.empty() && !is_peer(row))
      for (auto& [key, value] : row["recipe"].items()) order.push_back(key);
  }
  order.emplace_back("device");
  for (auto& key : order)
    if (values[key].size() > 1 && follows[key] < recipes) result.push_back(key);
  return result;
}

// +- half the 95% interval of the median; "-" with fewer than six samples.
std::string interval_text(const Json& row) {
  double low = number(row, "step_ms_median_low"), high = number(row, "step_ms_median_high");
  double share = (high - low) / 2 / number(row, "step_ms_median");
  return std::isfinite(share) ? fmt::format("+-{:.1f}%", 100 * share) : std::string("-");
}

std::optional<double> floor_of(const Json& row) {
  if (row.contains("noise_floor")) return row["noise_floor"].get<double>();
  if (row.contains("known_noise_floor")) return row["known_noise_floor"]["relative"].get<double>();
  return std::nullopt;
}

class BenchTable {
 public:
  explicit BenchTable(const std::vector<Json>& rows) : rows_(rows), settings_(varied(rows)) {
    std::set<std::string> phases;
    for (auto& row : rows) {
      throttling_ |= row.value("throttled", 0) > 0;
      floors_ |= floor_of(row).has_value();
      phases.insert(is_peer(row) ? "peer" : text(row["phase"]));
      if (!is_peer(row) && has_times(row))
        held_ |= number(row["memory"], "measured_peak_bytes") != number(row["memory"], "planned_bytes");
      power_ |= std::isfinite(number(row, "power_w"));
      hfu_ |= std::isfinite(number(row, "hfu"));
      sheet_ |= row.contains("data_sheet");
    }
    phases_ = phases.size() > 1;
  }

  std::string text_of(bool color, size_t width) {
    std::vector<std::vector<std::string>> table;
    for (auto& row : rows_) table.push_back(cells(row));
    std::string out = shared() + "\n\n" + fit_table(columns(), table, width, color);
    for (auto& n : notes_) out += "\n" + n;
    return out + "\n";
  }

 private:
  // The settings common to all rows: "step; precision bf16, attention flash, ...".
  std::string shared() const {
    auto row = std::find_if(rows_.begin(), rows_.end(), [](auto& r) { return !is_peer(r); });
    if (row == rows_.end()) return "";
    auto settings = settings_of(*row);
    std::vector<std::string> parts;
    for (auto& key : usual) {
      bool same = std::all_of(rows_.begin(), rows_.end(),
                              [&](auto& r) { return is_peer(r) || settings_of(r)[key] == settings[key]; });
      if (same) parts.push_back(key + " " + printable(settings[key]));
    }
    return (phases_ ? "" : text((*row)["phase"]) + "; ") + join(parts, ", ");
  }

  std::vector<FitColumn> columns() const {
    std::vector<FitColumn> all;
    auto add = [&](const std::string& header, int rank, Align align = Align::right) {
      all.push_back({{header, align}, rank});
    };
    if (phases_) add("phase", 0, Align::left);
    for (auto& setting : settings_)
      add(setting, 0, setting == "batch" || setting == "seq" ? Align::right : Align::left);
    add("median ms", 1), add("95% CI", 3), add("samples", 6);
    if (throttling_) add("throttled", 4);
    if (floors_) add("noise floor", 5);
    add("tokens/s", 0), add("TFLOP/s", 7), add("MFU", 0);
    if (hfu_) add("HFU", 5);
    if (sheet_) add("of data sheet", 6);
    if (power_) add("W", 5), add("J/token", 5);
    add("planned", 2);
    if (held_) add("held", 8);
    auto gpu = [](auto& row) { return !is_peer(row) && text_at(row["device"], "kind") == "cuda"; };
    add(std::any_of(rows_.begin(), rows_.end(), gpu) ? "device peak" : "process peak", 9);
    return all;
  }

  std::vector<std::string> cells(const Json& row) {
    std::vector<std::string> out;
    if (phases_) out.push_back(is_peer(row) ? "peer" : text(row["phase"]));
    auto settings = settings_of(row);
    for (auto& setting : settings_) out.push_back(printable(settings[setting]));
    if (has_times(row)) {
      out.push_back(fmt::format("{:.2f}", number(row, "step_ms_median")));
      out.push_back(interval_text(row));
      out.push_back(text(row["samples"]));
    } else {
      for (const char* c : {"out of memory", "", ""}) out.emplace_back(c);
    }
    if (throttling_) out.push_back(has_times(row) ? std::to_string(row.value("throttled", 0)) : "");
    auto floor = floor_of(row);
    if (floors_) out.push_back(floor ? fmt::format("{:.1f}%", 100 * *floor) : "");
    add_rates(row, out);
    if (hfu_) out.push_back(percent(number(row, "hfu")));
    if (sheet_) {
      const Json sheet = row.value("data_sheet", Json::object());
      const std::string mfu = percent(number(sheet, "mfu")), hfu = percent(number(sheet, "hfu"));
      out.push_back(mfu == hfu ? mfu : mfu + ", " + hfu);
    }
    if (power_) add_power(row, out);
    if (!is_peer(row)) add_memory(row["memory"], out);
    add_notes(row);
    return out;
  }

  static std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : ""; }
  static void add_rates(const Json& row, std::vector<std::string>& out) {
    double rate = number(row, "tokens_per_second"), mfu = number(row, "mfu");
    out.push_back(std::isfinite(rate) ? fmt::format("{:.0f}", rate) : "");
    out.push_back(std::isfinite(rate) ? fmt::format("{:.4g}", number(row, "model_tflops")) : "");
    out.push_back(std::isfinite(mfu) ? fmt::format("{:.1f}%", 100 * mfu) : std::isfinite(rate) ? "-" : "");
  }

  static void add_power(const Json& row, std::vector<std::string>& out) {
    double watts = number(row, "power_w"), joules = number(row, "joules_per_token");
    out.push_back(std::isfinite(watts) ? fmt::format("{:.0f}", watts) : "");
    out.push_back(std::isfinite(joules) ? fmt::format("{:.3g}", joules) : "");
  }

  void add_memory(const Json& memory, std::vector<std::string>& out) const {
    for (const char* key : {"planned_bytes", "measured_peak_bytes", "device_peak_bytes"})
      if (held_ || key != std::string_view("measured_peak_bytes"))
        out.push_back(memory.contains(key) ? format_bytes(number(memory, key)) : "");
  }

  void note(const std::string& said) {
    std::string text = printable(said, 1000);  // a row may come from another machine's database
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
  }
  void add_notes(const Json& row) {
    if (is_peer(row)) return note("peer: " + text(row["peer"]));
    if (!has_times(row)) return;
    std::string said = text(row["flops_convention"]);
    size_t peak = said.find("; MFU against ");
    note(fmt::format("TFLOP/s of {}: {}", text(row["phase"]), said.substr(0, peak)));
    if (peak != said.npos) note(fmt::format("{}: {}", text(row["recipe"]["precision"]), said.substr(peak + 2)));
    if (std::isfinite(number(row, "hfu")) && !said.starts_with("executed"))
      note("HFU: also counts the matmuls and the attention that recompute repeats");
    if (auto sheet = row.find("data_sheet"); sheet != row.end())
      note(fmt::format("of data sheet: MFU and HFU against the {} of {}, as crest flops has them",
                       format_si(number(*sheet, "peak_flops_per_second"), "FLOP/s"), text((*sheet)["source"])));
    if (row.value("throttled", 0) > 0) {
      std::vector<std::string> reasons = row["throttle_reasons"];
      note(fmt::format("throttled: samples taken while the device was throttled ({})", join(reasons, ", ")));
    }
  }

  inline static const std::vector<std::string> usual = {"precision", "attention", "fusion",
                                                        "recompute", "batch",     "seq"};
  const std::vector<Json>& rows_;
  std::vector<std::string> settings_, notes_;
  bool throttling_ = false, floors_ = false, power_ = false, hfu_ = false, sheet_ = false;
  bool phases_ = false;  // rows differ in phase
  bool held_ = false;    // a row holds more or less memory than planned
};

// What distinguishes a row from the others: "batch 4, precision bf16".
std::string label(const Json& row, const std::vector<std::string>& keys) {
  auto settings = settings_of(row);
  std::vector<std::string> parts;
  for (auto& key : keys) parts.push_back(key + " " + printable(settings[key]));
  return parts.empty() ? "the recipe" : join(parts, ", ");
}

// Whether `faster` is faster than `slower` beyond noise (stats/noise.h), and the evidence.
struct Judged {
  bool conclusive = false, quiet = true;
  std::string lead;      // "2.0%": how many more tokens/s
  std::string evidence;  // "95% interval 1.5% to 2.4%; noise floor 1.0%"
};

// Seconds per token. Rows recorded without samples have only the median.
std::vector<double> times_a_token(const Json& row) {
  double tokens = number(row, "tokens_per_second") * number(row, "step_ms_median");
  std::vector<double> times = row.contains("samples_ms") ? row["samples_ms"].get<std::vector<double>>()
                                                         : std::vector{number(row, "step_ms_median")};
  for (double& t : times) t /= tokens;
  return times;
}

// `rounds`: by how much equally fast measurements may differ, from their two rounds; negative:
// unknown.
Judged judge(const Json& faster, const Json& slower, double rounds) {
  auto a = floor_of(faster), b = floor_of(slower);
  double floor = std::max(a || b ? std::max(a.value_or(0), b.value_or(0)) : -1, rounds);
  NoiseCheck n = check_noise(times_a_token(faster), times_a_token(slower), floor, false);
  std::string evidence = n.tested ? fmt::format("95% interval {:.1f}% to {:.1f}%; ", 100 * (n.ratio_interval.low - 1),
                                                100 * (n.ratio_interval.high - 1))
                                  : "";
  evidence += fmt::format("noise floor {:.1f}%", 100 * n.floor);
  if (rounds > 0 && floor == rounds) evidence += ", from the two rounds of the recipes";
  if (n.floor_source == "assumed") evidence += ", assumed (crest bench --noise measures it)";
  if (!n.tested) evidence += ", too few samples";
  const double busy = std::fmax(number(faster, "other_load"), number(slower, "other_load"));
  const bool quiet = !(busy > quiet_cpus);  // unknown: of a GPU, or an older row
  if (!quiet) evidence += fmt::format("; other processes kept up to {:.1f} CPUs busy", busy);
  return {quiet && n.verdict == Verdict::a_faster, quiet, fmt::format("{:.1f}%", 100 * (n.ratio - 1)), evidence};
}

}  // namespace

std::string text_of(const std::vector<Json>& rows, bool color, size_t width) {
  return BenchTable(rows).text_of(color, width);
}

std::vector<std::string> conclusions(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  std::vector<std::string> keys = varied(rows);
  for (BenchPhase which : bench_phases()) {
    const char* phase = name(which);
    std::vector<const Json*> measurements;
    for (auto& row : rows)
      if (!is_peer(row) && has_times(row) && row["phase"] == phase) measurements.push_back(&row);
    if (measurements.size() < 2) continue;
    std::stable_sort(measurements.begin(), measurements.end(), [](auto* x, auto* y) {
      return number(*x, "tokens_per_second") > number(*y, "tokens_per_second");
    });
    std::vector<std::pair<double, double>> round_ms;
    for (auto* measurement : measurements)
      if (auto it = measurement->find("round_ms"); it != measurement->end() && it->is_array() && it->size() == 2)
        round_ms.emplace_back((*it)[0], (*it)[1]);
    double rounds = floor_of_rounds(round_ms);
    if (rounds >= 0) rounds = std::max(rounds, 0.01);
    const Json& best = *measurements[0];
    size_t alike = 1;
    while (alike < measurements.size() && !judge(best, *measurements[alike], rounds).conclusive) ++alike;
    Judged next = judge(best, *measurements[1], rounds);
    std::string who = label(best, keys), second = label(*measurements[1], keys);
    if (next.conclusive)
      sentences.push_back(fmt::format("{}: {} has the most tokens/s, {} more than {} ({})", phase, who, next.lead,
                                      second, next.evidence));
    else
      sentences.push_back(fmt::format("{}: no clear winner; the top {} are {}: {}{}{}{} ({} apart; {})", phase, alike,
                                      next.quiet ? "within noise" : "not comparable", who, alike > 2 ? ", " : " and ",
                                      second, alike > 2 ? fmt::format(" and {} more", alike - 2) : "", next.lead,
                                      next.evidence));
  }
  return sentences;
}

}  // namespace crest
