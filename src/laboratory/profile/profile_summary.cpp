#include "profile/profile_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "profile/overlap.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

// The pass `attention` gives these scopes to the parts of naive attention, inside the attention's
// scope.
bool naive_attention_scope(const std::string& scope) {
  static const std::set<std::string> parts = {"heads",   "scores",  "scale",  "mask",
                                              "softmax", "dropout", "values", "join"};
  size_t dot = scope.rfind('.');
  return dot != std::string::npos && parts.count(scope.substr(dot + 1)) > 0;
}

bool in_attention(const ProfileInstr& r) {
  return r.op_class == "attention" || std::any_of(r.scopes.begin(), r.scopes.end(), naive_attention_scope);
}

void add(TimeAndFlops& to, const ProfileInstr& r) { to.ms += r.ms, to.flops += r.flops, ++to.rows; }

void add_idle(ProfileSummary& f, const Profile& p) {
  double end = 0;
  for (auto& i : p.intervals) {
    double idle = i.start_ms - end;
    if (idle > 0) ++f.idle_periods, f.longest_idle_ms = std::max(f.longest_idle_ms, idle);
    end = std::max(end, i.start_ms + i.ms);
  }
}

}  // namespace

ProfileSummary summary_of(const Profile& p) {
  ProfileSummary f;
  for (auto& r : p.instrs) {
    f.total_ms += r.ms, f.floor_ms += r.floor_ms;
    double& phase = communicates(r)          ? f.communication_ms
                    : r.phase == "forward"   ? f.forward_ms
                    : r.phase == "recompute" ? f.recompute_ms
                    : r.phase == "backward"  ? f.backward_ms
                                             : f.update_ms;
    phase += r.ms;
    if (r.op_class == "contraction") add(f.contractions, r);
    if (in_attention(r)) add(f.attention, r);
    if (r.op == "softmax" || r.op == "softmax_grad") add(f.softmax, r);
    if (r.op == "matmul") add(f.products, r);
  }
  for (auto& c : communication_times(p)) f.hidden_ms += c.hidden_ms, f.exposed_ms += c.exposed_ms;
  for (auto& g : gradient_times(p)) f.gradients_ms += g.hidden_ms + g.exposed_ms, f.gradients_hidden_ms += g.hidden_ms;
  f.launches = p.launches;
  f.idle_ms = p.idle_ms;
  add_idle(f, p);
  return f;
}

Json to_json(const ProfileSummary& f) {
  auto pair = [](const TimeAndFlops& t) { return Json{{"ms", t.ms}, {"flops", t.flops}, {"instructions", t.rows}}; };
  return {{"total_ms", f.total_ms},
          {"floor_ms", f.floor_ms},
          {"forward_ms", f.forward_ms},
          {"recompute_ms", f.recompute_ms},
          {"backward_ms", f.backward_ms},
          {"update_ms", f.update_ms},
          {"communication_ms", f.communication_ms},
          {"communication_hidden_ms", f.hidden_ms},
          {"communication_exposed_ms", f.exposed_ms},
          {"gradient_stream_ms", f.gradients_ms},
          {"gradient_stream_hidden_ms", f.gradients_hidden_ms},
          {"contractions", pair(f.contractions)},
          {"attention", pair(f.attention)},
          {"softmax", pair(f.softmax)},
          {"attention_products", pair(f.products)},
          {"launches", f.launches},
          {"gaps", f.idle_periods},
          {"idle_ms", f.idle_ms},
          {"largest_gap_ms", f.longest_idle_ms}};
}

Json profile_result(const Profile& p, const std::string& device) {
  return {{"recipe", p.recipe},
          {"device", device},
          {"phase", p.phase},
          {"step_ms_median", p.step_median_ms()},
          {"profiled_ms_median", p.profiled_median_ms()},
          {"samples", p.step_ms.size()},
          {"tokens_per_second", double(p.tokens) / p.step_median_ms() * 1e3},
          {"power_w", p.power_w ? Json(*p.power_w) : Json(nullptr)},
          {"joules_per_token", p.joules_per_token() ? Json(*p.joules_per_token()) : Json(nullptr)},
          {"memory",
           {{"planned_bytes", p.memory.planned_bytes},
            {"measured_peak_bytes", p.memory.measured_peak_bytes},
            {"device_peak_bytes", p.memory.device_peak_bytes}}}};
}

std::vector<LayerTime> layer_times(const Profile& p) {
  std::map<int, LayerTime> layers;
  for (auto& r : p.instrs) {
    if (r.layer < 0) continue;
    LayerTime& t = layers[r.layer];
    t.layer = r.layer;
    (r.phase == "forward" ? t.forward_ms : r.phase == "recompute" ? t.recompute_ms : t.backward_ms) += r.ms;
  }
  std::vector<LayerTime> list;
  for (auto& [layer, t] : layers) list.push_back(t);
  return list;
}

MemoryPoint memory_peak(const Profile& p) {
  MemoryPoint peak;
  for (auto& point : memory_timeline(p))
    if (peak.instr < 0 || total(point.bytes) > total(peak.bytes)) peak = point;
  return peak;
}

std::vector<MemoryHolder> memory_holders(const Profile& p, const MemoryPoint& point) {
  std::map<std::tuple<std::string, std::string, int>, MemoryHolder> sums;
  auto add = [&](const std::string& category, const std::string& phase, int layer, int64_t bytes) {
    MemoryHolder& h = sums[{category, phase, layer}];
    h.category = category, h.phase = phase, h.layer = layer;
    h.bytes += bytes, ++h.blocks;
  };
  for (auto& b : p.memory.persistent) add(b.category, "", -1, b.bytes);
  if (point.instr >= 0)
    for (auto& b : p.memory.blocks)
      if (b.program == p.calls.at(size_t(point.call)) && b.first <= point.index && point.index <= b.last)
        add(b.category, b.phase, b.layer, b.bytes);
  std::vector<MemoryHolder> list;
  for (auto& [key, h] : sums) list.push_back(h);
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return list;
}

std::vector<MemoryAllocation> largest_allocations(const Profile& p, size_t count) {
  std::map<std::pair<std::string, int>, int> row;
  for (size_t i = 0; i < p.instrs.size(); ++i) row[{p.instrs[i].program, p.instrs[i].index}] = int(i);
  std::vector<MemoryAllocation> list;
  for (auto& b : p.memory.persistent) list.push_back({b.name, b.category, b.bytes});
  for (auto& b : p.memory.blocks)
    list.push_back({b.name, b.category, b.bytes, b.scope == "input" ? -1 : row.at({b.program, b.first})});
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  std::set<std::tuple<std::string, std::string, int64_t>> seen;
  std::erase_if(list, [&](auto& a) { return !seen.insert({a.name, a.category, a.bytes}).second; });
  list.resize(std::min(list.size(), count));
  return list;
}

}  // namespace crest
