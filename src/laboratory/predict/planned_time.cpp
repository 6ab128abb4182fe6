#include "predict/planned_time.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/device_json.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "predict/exposed_time.h"
#include "predict/rank_time.h"
#include "predict/transfer_time.h"
#include "predict/waiting_time.h"
#include "profile/overlap.h"
#include "profile/profile_rows.h"

namespace crest {

using Json = nlohmann::ordered_json;

// waits_ms: as in TimeModel::predict.
static PlannedTime time_with(const CompiledSession& session, const Calibration& calibration, const DataSheet* sheet,
                             double waits_ms) {
  PlannedTime t;
  set_work(t, session);
  RankTimes ranks(session, &calibration.collectives, sheet);
  t.collectives = ranks.source();
  Profile own;  // independent of other ranks
  std::vector<ProfileInstr*> rows;
  for (auto& row : t.profile.instrs) {
    if (crosses_host_link(row)) {
      continue;
    } else if (ranks.possible() && communicates(row)) {
      ranks.add(t, row);
    } else {
      own.instrs.push_back(row);
      rows.push_back(&row);
    }
  }
  StepPrediction step = calibration.times.predict(own, waits_ms);
  t.measured_share = step.known;
  double sum = 0;
  for (double ms : step.instr_ms) sum += ms;
  // Phases and classes add up to the step.
  for (size_t i = 0; i < rows.size(); ++i) rows[i]->ms = sum > 0 ? step.instr_ms[i] * step.ms / sum : 0;
  set_transfers(t, session, host_link_of(session, calibration.times.rates(), sheet));
  const ExposedRange exposed = hide_collectives(t, session);
  t.ms = step.ms + t.collectives_ms + t.transfers_ms;
  t.low_ms = step.low_ms + exposed.low_ms + t.transfers_ms / transfer_factor;
  t.high_ms = step.high_ms + exposed.high_ms + t.transfers_ms * transfer_factor;
  t.spread = step_spread(session.device, &calibration.times);
  t.peak = calibration.times.rate(session.recipe.precision) * t.ranks;
  return t;
}

// While a rank waits, it draws less power, so its products run at a higher clock.
PlannedTime planned_time(const CompiledSession& session, const Calibration& calibration, const DataSheet* sheet) {
  PlannedTime t = time_with(session, calibration, sheet, 0);
  return t.collectives_ms > 0 ? time_with(session, calibration, sheet, t.collectives_ms) : t;
}

Json profile_document(const PlannedTime& t, const CompiledSession& session, const Calibration& c) {
  Profile p = t.profile;
  p.recipe = recipe_to_json(session.recipe), p.device = device_to_json(session.device),
  p.environment = common_environment(c);
  p.method = "predicted";
  p.phase = phase_of(session);
  p.tokens = t.tokens, p.model_flops = t.model_flops;
  p.rates = c.times.rates();
  std::erase_if(p.rates, [](auto& rate) { return rate.name.starts_with(host_link_rate); });
  if (t.host_link.per_second > 0) p.rates.push_back(t.host_link);
  set_floors(p);
  p.step_ms = p.profiled_ms = {t.ms};
  p.kept_ms = p.span_ms = p.busy_ms = t.ms;
  Json json = to_json(p);
  json["noise_floor"] = std::sqrt(t.high_ms / t.low_ms) - 1;
  json["calibration"] = {
      {"date", c.date()}, {"device", c.device()}, {"steps", c.times.steps()}, {"sources", sources_json(c)}};
  return json;
}

Json to_json(const PlannedTime& t, const Calibration& c) {
  Json json = time_json(t, t.measured_share);
  json["calibration"] = {{"file", c.file},       {"built_in", c.built_in()}, {"date", c.date()},
                         {"device", c.device()}, {"steps", c.times.steps()}, {"sources", sources_json(c)}};
  json["source"] = "calibration";
  return json;
}

std::string text_of(const PlannedTime& t, const Calibration& c, double total) {
  std::string text =
      time_line(t) + fmt::format("\n            predicted from {}\n", join(sources_text(c), ",\n            and "));
  std::string phases;
  for (auto& share : by_phase(t.profile))
    if (share.instructions && share.ms > 0)
      phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", share.key, format_duration(share.ms / 1e3));
  text += fmt::format("            {}\n", phases) + ranks_line(t) + transfers_line(t);
  if (t.measured_share < 0.995)
    text += fmt::format("            {:.0f}% of the time is in kernels without a measurement, estimated from others\n",
                        100 * (1 - t.measured_share));
  return text + training_line(t, total);
}

}  // namespace crest
