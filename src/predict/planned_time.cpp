#include "predict/planned_time.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/device_json.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "profile/profile_rows.h"

namespace crest {

using Json = nlohmann::ordered_json;

Profile step_rows(const CompiledSession& session) {
  Profile p;
  std::vector<int> calls;
  for (auto& call : training_step(session)) calls.push_back(call.segment);
  describe_session(p, session, calls);
  return p;
}

PlannedTime planned_time(const CompiledSession& session, const Calibration& calibration) {
  PlannedTime t;
  t.profile = step_rows(session);
  t.step = calibration.times.predict(t.profile);
  double sum = 0;
  for (double ms : t.step.instr_ms) sum += ms;
  // Phases and classes add up to the step.
  for (size_t i = 0; i < t.profile.instrs.size(); ++i)
    t.profile.instrs[i].ms = sum > 0 ? t.step.instr_ms[i] * t.step.ms / sum : 0;
  const Recipe& r = session.recipe;
  bool forward = session.find("train.forward") >= 0;
  t.tokens = r.tokens_per_step() / (forward ? r.grad_accumulation : 1);
  t.model_flops = r.model.flops_per_token(r.seq_length()) * double(t.tokens) / (forward ? 3 : 1);
  for (auto& row : t.profile.instrs) t.executed_flops += row.flops;
  t.precision = r.precision;
  t.peak = calibration.times.rate(r.precision);
  return t;
}

Json profile_document(const PlannedTime& t, const CompiledSession& session, const Calibration& c) {
  Profile p = t.profile;
  p.recipe = recipe_to_json(session.recipe), p.device = device_to_json(session.device), p.environment = c.environment;
  if (!p.environment.is_object()) p.environment = Json::object();
  p.method = "predicted";
  p.phase = session.find("train.forward") >= 0 ? "forward" : "step";
  p.tokens = t.tokens, p.model_flops = t.model_flops;
  p.rates = c.times.rates();
  set_floors(p);
  p.step_ms = p.profiled_ms = {t.step.ms};
  p.kept_ms = p.span_ms = p.busy_ms = t.step.ms;
  Json json = to_json(p);
  json["noise_floor"] = std::sqrt(t.step.high_ms / t.step.low_ms) - 1;
  return json;
}

Json to_json(const PlannedTime& t, const Calibration& c) {
  auto shares = [](const std::vector<ProfileShare>& list) {
    Json json = Json::object();
    for (auto& share : list)
      if (share.instructions) json[share.key] = share.ms;
    return json;
  };
  double seconds = t.step.ms / 1e3;
  auto of_peak = [&](double flops) { return t.peak > 0 ? Json(flops / seconds / t.peak) : Json(); };
  return {{"step_ms", t.step.ms},
          {"step_ms_low", t.step.low_ms},
          {"step_ms_high", t.step.high_ms},
          {"measured_share", t.step.known},
          {"tokens_per_second", t.tokens_per_second()},
          {"model_flops_per_second", t.model_flops / seconds},
          {"mfu", of_peak(t.model_flops)},
          {"hfu", of_peak(t.executed_flops)},
          {"peak_flops_per_second", t.peak > 0 ? Json(t.peak) : Json()},
          {"by_phase", shares(by_phase(t.profile))},
          {"by_class", shares(by_class(t.profile))},
          {"by_layer", shares(by_layer(t.profile))},
          {"calibration",
           {{"file", c.file},
            {"built_in", c.built_in},
            {"date", c.date},
            {"device", c.device},
            {"steps", c.times.steps()}}},
          {"source", "calibration"}};
}

std::string text_of(const PlannedTime& t, const Calibration& c, double total) {
  double seconds = t.step.ms / 1e3;
  auto duration = [](double ms) { return format_duration(ms / 1e3); };
  std::string text = fmt::format("time        {} ({} to {}), {} tokens/s", duration(t.step.ms), duration(t.step.low_ms),
                                 duration(t.step.high_ms), format_count(t.tokens_per_second()));
  if (t.peak > 0)
    text += fmt::format(", MFU {:.1f}% of {}", 100 * t.model_flops / seconds / t.peak, format_si(t.peak, "FLOP/s"));
  text += fmt::format("\n            predicted from {} steps measured on {}, {}\n", c.times.steps(),
                      (c.built_in ? "another " : "") + printable(c.device), c.date.substr(0, 10));
  std::string phases;
  for (auto& share : by_phase(t.profile))
    if (share.instructions && share.ms > 0)
      phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", share.key, duration(share.ms));
  text += fmt::format("            {}\n", phases);
  if (t.step.known < 0.995)
    text += fmt::format("            {:.0f}% of it in kernels that were not measured: estimated from others\n",
                        100 * (1 - t.step.known));
  if (total > 0) {
    double steps = total / double(t.tokens), all = steps * seconds;
    text += fmt::format("            {} tokens: {} steps, {} ({} to {})\n", format_count(total),
                        format_count(std::ceil(steps)), format_duration(all),
                        format_duration(all * t.step.low_ms / t.step.ms),
                        format_duration(all * t.step.high_ms / t.step.ms));
  }
  return text;
}

}  // namespace crest
