#include "bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/json_number.h"
#include "core/text.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "terminal/table.h"

namespace crest {

using Json = nlohmann::ordered_json;

double BenchRow::share(double of_flops, const BenchPeak& of) const {
  return of.flops_per_second > 0 ? of_flops / seconds.median() / of.flops_per_second : NAN;
}

namespace {

void add_times(Json& json, const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  Interval interval = ms.median_interval();
  json["step_ms_mean"] = ms.mean();
  json["step_ms_std"] = ms.std_dev();
  json["step_ms_median"] = ms.median();
  json["step_ms_min"] = ms.min();
  json["step_ms_max"] = ms.max();
  json["samples"] = ms.count();
  json["samples_ms"] = ms.values();
  json["step_ms_p10"] = ms.quantile(0.1);
  json["step_ms_p90"] = ms.quantile(0.9);
  json["step_ms_median_low"] = number_or_null(interval.low);
  json["step_ms_median_high"] = number_or_null(interval.high);
}

std::string peak_text(const BenchPeak& peak) {
  return fmt::format("MFU against {} ({})", format_si(peak.flops_per_second, "FLOP/s"), peak.source);
}

}  // namespace

Json to_json(const BenchRow& row) {
  Json json = {{"recipe", recipe_to_json(row.recipe)}, {"device", row.device}, {"phase", name(row.phase)}};
  Json memory = {{"planned_bytes", row.planned}};
  if (row.out_of_memory) {
    json["error"] = "out_of_memory";
  } else {
    add_times(json, row.seconds);
    json["throttled"] = row.throttled;
    json["throttle_reasons"] = row.throttled ? row.throttle_reasons : std::set<std::string>();
    json["tokens_per_second"] = row.tokens_per_second();
    json["model_tflops"] = row.model_flops_per_second() / 1e12;
    json["mfu"] = number_or_null(row.mfu());
    json["hfu"] = number_or_null(row.hfu());
    if (row.sheet.flops_per_second > 0)
      json["data_sheet"] = {{"source", row.sheet.source},
                            {"peak_flops_per_second", row.sheet.flops_per_second},
                            {"mfu", row.share(row.flops, row.sheet)},
                            {"hfu", row.share(row.hardware_flops, row.sheet)}};
    json["power_w"] = row.watts ? Json(*row.watts) : Json(nullptr);
    json["other_load"] = row.other_load ? Json(*row.other_load) : Json(nullptr);
    json["joules_per_token"] = row.watts ? Json(*row.watts / row.tokens_per_second()) : Json(nullptr);
    json["flops_convention"] =
        row.convention + (row.peak.flops_per_second > 0 ? "; " + peak_text(row.peak) : std::string());
    memory["measured_peak_bytes"] = row.held;
    memory["device_peak_bytes"] = row.device_peak;
    memory["context_start_bytes"] = row.context_start ? Json(*row.context_start) : Json(nullptr);
    memory["context_bytes"] = row.context ? Json(*row.context) : Json(nullptr);
  }
  memory["by_category"] = categories_to_json(row.by_category);
  json["memory"] = memory;
  if (row.pipeline) json["pipeline"] = to_json(*row.pipeline);
  if (row.noise_floor) json["noise_floor"] = *row.noise_floor;
  if (row.known_floor)
    json["known_noise_floor"] = {
        {"relative", row.known_floor->relative}, {"run", row.known_floor->run}, {"when", row.known_floor->when}};
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
          {"noise_floor", result.noise_floor < 0 ? Json(nullptr) : Json(result.noise_floor)},
          {"rounds", result.rounds},
          {"sentence", describe(c)}};
}

Json peer_to_json(const std::string& command, const Samples& seconds) {
  Json json = {{"peer", command}};
  add_times(json, seconds);
  return json;
}

}  // namespace crest
