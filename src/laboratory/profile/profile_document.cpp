#include "profile/profile_document.h"

#include "plan/plan_json.h"
#include "profile/profile_summary.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

Json shares_json(const std::vector<ProfileShare>& shares) {
  Json list = Json::array();
  for (auto& s : shares)
    list.push_back({{"key", s.key},
                    {"instructions", s.instructions},
                    {"launches", s.launches},
                    {"ms", s.ms},
                    {"floor_ms", s.floor_ms},
                    {"flops", s.flops},
                    {"bytes", s.bytes}});
  return list;
}

Json peak_json(const Profile& p) {
  MemoryPoint peak = memory_peak(p);
  Json holders = Json::array();
  for (auto& h : memory_holders(p, peak))
    holders.push_back({{"category", h.category}, {"phase", h.phase}, {"layer", h.layer}, {"bytes", h.bytes}});
  return {{"bytes", total(peak.bytes)},
          {"call", peak.call},
          {"index", peak.index},
          {"instr", peak.instr},
          {"by_category", categories_to_json(peak.bytes)},
          {"holders", holders}};
}

}  // namespace

Json profile_document(const Profile& p, const std::vector<Alternative>& alternatives, double flops_per_token) {
  Json json = to_json(p);
  json["step_ms_median"] = p.step_median_ms();
  json["profiled_ms_median"] = p.profiled_median_ms();
  json["overhead"] = p.overhead();
  json["closure"] = p.explained_fraction();
  auto joules = p.joules_per_token();
  json["joules_per_token"] = joules ? Json(*joules) : Json(nullptr);
  json["facts"] = to_json(summary_of(p));
  json["by_phase"] = shares_json(by_phase(p));
  json["by_class"] = shares_json(by_class(p));
  json["by_layer"] = shares_json(by_layer(p));
  json["by_place"] = shares_json(by_place(p));
  json["by_kernel"] = shares_json(by_kernel(p));
  json["memory_peak"] = peak_json(p);
  json["alternatives"] = Json::array();
  for (auto& a : alternatives)
    json["alternatives"].push_back({{"flags", a.flags},
                                    {"planned_bytes", a.planned_bytes},
                                    {"saved_bytes", p.memory.planned_bytes - a.planned_bytes},
                                    {"flops_ratio", a.flops_per_token / flops_per_token}});
  return json;
}

}  // namespace crest
