#include "predict/floor_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "predict/exposed_time.h"
#include "predict/products.h"
#include "predict/rank_time.h"
#include "predict/transfer_time.h"
#include "predict/waiting_time.h"
#include "profile/overlap.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"

namespace crest {

using Json = nlohmann::ordered_json;

// Fitted by relative error to nine steps of Crest on an H200, all within 7%. Four more steps on an
// H100 are within 11%.
const FloorScale floor_scale = {2.222, 1.523, 0.00358, 1.15, 2};

FloorTime floor_time(const CompiledSession& session, const DataSheet& sheet, const CollectiveTimes* measured) {
  FloorTime t;
  set_work(t, session);
  t.profile.rates = sheet_rates(sheet);
  for (auto& name : rates_needed(t.profile)) {
    if (t.profile.rate(name) > 0) continue;
    // A device without units for a precision computes in fp32.
    double rate = t.profile.rate("fp32");
    t.profile.rates.push_back({name, rate, "fp32, since the sheet has no " + name});
    t.replaced.push_back(fmt::format("{}: the sheet has no rate; fp32's is used", name));
  }
  set_floors(t.profile);
  RankTimes ranks(session, measured, &sheet);
  t.collectives = ranks.source();
  for (auto& row : t.profile.instrs) {
    if (crosses_host_link(row)) continue;
    if (ranks.possible() && communicates(row)) {
      ranks.add(t, row);
      continue;
    }
    t.floor_ms += row.floor_ms;
    double over = row.op_class == "attention" ? floor_scale.attention : floor_scale.others;
    row.ms = over * row.floor_ms + floor_scale.ms_per_call * row.calls;
    t.ms += row.ms;
  }
  set_transfers(t, session, host_link_of(session, {}, &sheet));
  t.ms += t.transfers_ms, t.floor_ms += t.transfers_ms;
  const ExposedRange exposed = hide_collectives(t, session);
  const double computation_ms = t.ms;
  t.ms += t.collectives_ms, t.floor_ms += exposed.low_ms;
  // An H100 has 295 FLOPs per byte, an H200 206. A device with another balance has other limits.
  double balance = sheet.peak("bf16").value_or(0) / sheet.bandwidth;
  t.known = sheet.capability == "9.0" && balance > 180 && balance < 320 && session.recipe.precision == "bf16" &&
            t.replaced.empty();
  t.factor = t.known ? floor_scale.known_factor : floor_scale.unknown_factor;
  t.low_ms = std::max(t.floor_ms, computation_ms / t.factor + exposed.low_ms);
  t.high_ms = computation_ms * t.factor + exposed.high_ms;
  std::vector<double> tiled;
  for (auto& row : t.profile.instrs)
    tiled.push_back(crosses_host_link(row) || communicates(row) ? row.ms : row.floor_ms);
  double bandwidth = t.profile.rate("bandwidth");
  for (auto& p : products_of(session)) {
    const ProfileInstr& row = t.profile.instrs[p.row];
    double rate = t.profile.rate(row.arithmetic);
    double flops = p.flops() * p.tile_padding() * p.wave_padding(sheet.multiprocessors);
    tiled[p.row] = 1e3 * std::max(rate > 0 ? flops / rate : 0, bandwidth > 0 ? row.bytes / bandwidth : 0);
  }
  for (double ms : tiled) t.tiled_ms += ms;
  t.spread = step_spread(session.device, nullptr);
  t.peak = sheet.peak(session.recipe.precision).value_or(0) * t.ranks;
  return t;
}

Json to_json(const FloorTime& t) {
  Json json = time_json(t, 0);
  json["calibration"] = nullptr;
  json["source"] = "data sheet";
  json["floor_ms"] = t.floor_ms;
  json["range_measured"] = t.known;
  json["replaced_rates"] = t.replaced;
  return json;
}

std::string text_of(const FloorTime& t, double total) {
  std::string text = time_line(t) + fmt::format(
                                        "\n            predicted from the data sheet alone: {:.2f} times its roofline "
                                        "({} in all; attention {:.2f} times)\n"
                                        "            plus {:.1f} us a call, as fitted to an H200 in bf16",
                                        floor_scale.others, format_duration(t.floor_ms / 1e3), floor_scale.attention,
                                        1e3 * floor_scale.ms_per_call);
  text += t.known ? "\n" : fmt::format("; the range, a factor of {:g}, is an assumption\n", t.factor);
  text += ranks_line(t) + transfers_line(t);
  for (auto& line : t.replaced) text += fmt::format("            {}\n", line);
  return text + training_line(t, total);
}

}  // namespace crest
