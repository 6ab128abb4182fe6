#include "predict/floor_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text.h"

#include "predict/planned_time.h"
#include "predict/products.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"

namespace crest {

using Json = nlohmann::ordered_json;

// Fitted by relative error to nine steps of Crest on an H200, all within 7%; four steps on an H100,
// which were not fitted, are within 11%.
const FloorScale floor_scale = {2.222, 1.523, 0.00358, 1.15, 2};

FloorTime floor_time(const CompiledSession& session, const DataSheet& sheet) {
  FloorTime t;
  t.profile = step_rows(session);
  t.profile.rates = sheet_rates(sheet);
  for (auto& name : rates_needed(t.profile)) {
    if (t.profile.rate(name) > 0) continue;
    // fp32 is what a device without units for a precision computes in.
    double rate = t.profile.rate("fp32");
    t.profile.rates.push_back({name, rate, "fp32, since the sheet has no " + name});
    t.replaced.push_back(fmt::format("{}: the sheet has no rate; fp32's is used", name));
  }
  set_floors(t.profile);
  for (auto& row : t.profile.instrs) {
    t.floor_ms += row.floor_ms, t.executed_flops += row.flops;
    double over = row.op_class == "attention" ? floor_scale.attention : floor_scale.others;
    row.ms = over * row.floor_ms + floor_scale.ms_per_call * row.calls;
    t.ms += row.ms;
  }
  t.known = sheet.capability == "9.0" && session.recipe.precision == "bf16" && t.replaced.empty();
  t.factor = t.known ? floor_scale.known_factor : floor_scale.unknown_factor;
  t.low_ms = std::max(t.floor_ms, t.ms / t.factor), t.high_ms = t.ms * t.factor;
  std::vector<double> tiled;
  for (auto& row : t.profile.instrs) tiled.push_back(row.floor_ms);
  double bandwidth = t.profile.rate("bandwidth");
  for (auto& p : products_of(session)) {
    const ProfileInstr& row = t.profile.instrs[p.row];
    double rate = t.profile.rate(row.arithmetic);
    double flops = p.flops() * p.tile_padding() * p.wave_padding(sheet.multiprocessors);
    tiled[p.row] = 1e3 * std::max(rate > 0 ? flops / rate : 0, bandwidth > 0 ? row.bytes / bandwidth : 0);
  }
  for (double ms : tiled) t.tiled_ms += ms;
  const Recipe& r = session.recipe;
  bool forward = session.find("train.forward") >= 0;
  t.tokens = r.tokens_per_step() / (forward ? r.grad_accumulation : 1);
  t.model_flops = r.model.flops_per_token(r.seq_length()) * double(t.tokens) / (forward ? 3 : 1);
  t.peak = sheet.peak(r.precision).value_or(0);
  t.power = sheet.power;
  t.sheet = sheet.title;
  return t;
}

Json to_json(const FloorTime& t) {
  auto shares = [](const std::vector<ProfileShare>& list) {
    Json json = Json::object();
    for (auto& share : list)
      if (share.instructions) json[share.key] = share.ms;
    return json;
  };
  double seconds = t.ms / 1e3;
  auto of_peak = [&](double flops) { return t.peak > 0 ? Json(flops / seconds / t.peak) : Json(); };
  return {{"step_ms", t.ms},
          {"step_ms_low", t.low_ms},
          {"step_ms_high", t.high_ms},
          {"measured_share", 0},
          {"tokens_per_second", t.tokens_per_second()},
          {"model_flops_per_second", t.model_flops / seconds},
          {"mfu", of_peak(t.model_flops)},
          {"hfu", of_peak(t.executed_flops)},
          {"peak_flops_per_second", t.peak > 0 ? Json(t.peak) : Json()},
          {"by_phase", shares(by_phase(t.profile))},
          {"by_class", shares(by_class(t.profile))},
          {"by_layer", shares(by_layer(t.profile))},
          {"calibration", nullptr},
          {"source", "data sheet"},
          {"floor_ms", t.floor_ms},
          {"range_measured", t.known},
          {"replaced_rates", t.replaced}};
}

std::string text_of(const FloorTime& t, double total) {
  auto duration = [](double ms) { return format_duration(ms / 1e3); };
  std::string text = fmt::format("time        {} ({} to {}), {} tokens/s", duration(t.ms), duration(t.low_ms),
                                 duration(t.high_ms), format_count(t.tokens_per_second()));
  if (t.peak > 0)
    text += fmt::format(", MFU {:.1f}% of {}", 100 * t.model_flops / t.ms * 1e3 / t.peak, format_si(t.peak, "FLOP/s"));
  text += fmt::format(
      "\n            not measured there: floors by the data sheet, {} in all, x {:.2f} (attention x {:.2f}),\n"
      "            and {:.1f} us a call, as bf16 on an H200",
      duration(t.floor_ms), floor_scale.others, floor_scale.attention, 1e3 * floor_scale.ms_per_call);
  text += t.known ? "\n" : fmt::format("; the range's factor of {:g} is an assumption\n", t.factor);
  for (auto& line : t.replaced) text += fmt::format("            {}\n", line);
  if (total > 0) {
    double steps = total / double(t.tokens), all = steps * t.ms / 1e3;
    text += fmt::format("            {} tokens: {} steps, {} ({} to {})\n", format_count(total),
                        format_count(std::ceil(steps)), format_duration(all), format_duration(all * t.low_ms / t.ms),
                        format_duration(all * t.high_ms / t.ms));
  }
  return text;
}

}  // namespace crest
