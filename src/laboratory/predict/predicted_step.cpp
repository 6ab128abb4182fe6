#include "predict/predicted_step.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "model/parameters.h"
#include "plan/step_flops.h"
#include "profile/profile_rows.h"

namespace crest {

using Json = nlohmann::ordered_json;

static Json to_json(const CollectivesSource& c) {
  if (c.ranks == 0) return nullptr;
  Json json = {{"source", c.measured ? "measured" : "data sheet"}};
  if (c.measured) json["ranks"] = c.ranks, json["library"] = c.library, json["date"] = c.date;
  if (c.nodes > 1)
    json["nodes"] = c.nodes, json["node_gpus"] = c.node_gpus, json["network"] = c.network,
    json["network_bytes_per_second"] = c.network_bytes_per_second;
  return json;
}

static Json to_json(const PredictedPipeline& p) {
  Json stages = Json::array();
  for (const PredictedStage& s : p.stages) stages.push_back({{"passes_ms", s.passes_ms}, {"rest_ms", s.rest_ms}});
  return {{"ideal_ms", p.bubble.ideal},         {"warm_up_ms", p.bubble.warm_up},     {"drain_ms", p.bubble.drain},
          {"imbalance_ms", p.bubble.imbalance}, {"transfers_ms", p.bubble.transfers}, {"rest_ms", p.rest_ms},
          {"bubble", p.bubble.fraction()},      {"transfer_ms", p.transfer_ms},       {"stages", stages}};
}

static Json to_json(const std::map<std::string, LinkTraffic>& traffic) {
  Json json = Json::object();
  for (auto& [axes, bytes] : traffic)
    json[axes] = {{"in_node_bytes", bytes.in_node}, {"between_nodes_bytes", bytes.between_nodes}};
  return json;
}

Profile step_rows(const CompiledSession& session) {
  Profile p;
  std::vector<int> calls;
  for (auto& call : training_step(session)) calls.push_back(call.segment);
  describe_session(p, session, calls);
  return p;
}

void set_work(PredictedStep& s, const CompiledSession& session) {
  s.profile = step_rows(session);
  const Recipe& r = session.recipe;
  s.tokens = step_tokens(session);
  s.model_flops = double(s.tokens) * (forward_only(session) ? forward_flops_per_token(r.model, r.seq_length())
                                                            : flops_per_token(r.model, r.seq_length()));
  s.ranks = r.all_ranks();
  s.recomputed_flops = recomputed_flops(session);
}

Json time_json(const PredictedStep& s, double measured_share) {
  auto shares = [](const std::vector<ProfileShare>& list) {
    Json json = Json::object();
    for (auto& share : list)
      if (share.instructions) json[share.key] = share.ms;
    return json;
  };
  double seconds = s.ms / 1e3;
  auto of_peak = [&](double flops) { return s.peak > 0 ? Json(flops / seconds / s.peak) : Json(); };
  Json json = {
      {"step_ms", s.ms},
      {"step_ms_low", s.low_ms},
      {"step_ms_high", s.high_ms},
      {"measured_share", measured_share},
      {"tokens_per_second", s.tokens_per_second()},
      {"model_flops_per_second", s.model_flops / seconds},
      {"mfu", of_peak(s.model_flops)},
      {"hfu", of_peak(s.model_flops + s.recomputed_flops)},
      {"peak_flops_per_second", s.peak > 0 ? Json(s.peak) : Json()},
      {"collectives_ms", s.collectives_ms},
      {"hidden_collectives_ms", s.hidden_collectives_ms},
      {"collectives", to_json(s.collectives)},
      {"collectives_by_axes", s.collectives_by_axes},
      {"traffic_by_axes", to_json(s.traffic)},
      {"waiting_ms", s.waiting_ms},
      {"step_spread", s.spread.share > 0 ? Json({{"share", s.spread.share}, {"source", s.spread.source}}) : Json()},
      {"transfers_ms", s.transfers_ms},
      {"by_phase", shares(by_phase(s.profile))},
      {"by_class", shares(by_class(s.profile))},
      {"by_layer", shares(by_layer(s.profile))}};
  if (s.pipeline) json["pipeline"] = to_json(*s.pipeline);
  return json;
}

std::string time_line(const PredictedStep& s) {
  auto duration = [](double ms) { return format_duration(ms / 1e3); };
  auto percent = [&](double flops) { return fmt::format("{:.1f}%", 100 * flops / s.ms * 1e3 / s.peak); };
  std::string text = fmt::format("time        {} ({} to {}), {} tokens/s", duration(s.ms), duration(s.low_ms),
                                 duration(s.high_ms), format_count(s.tokens_per_second()));
  if (s.peak > 0)
    text += fmt::format(", MFU {}{} of {}", percent(s.model_flops),
                        s.recomputed_flops > 0 ? ", HFU " + percent(s.model_flops + s.recomputed_flops) : "",
                        format_si(s.peak, "FLOP/s"));
  return text;
}

// "data 69 ms, tensor 307 ms"; without axes below a thousandth of the sum: the loss and the norm of
// a step are a few bytes.
static std::string by_axes_text(const std::map<std::string, double>& parts,
                                const std::function<std::string(double)>& text) {
  double sum = 0;
  for (auto& part : parts) sum += part.second;
  std::vector<std::string> list;
  for (auto& [axes, value] : parts)
    if (value > 0.001 * sum) list.push_back(axes + " " + text(value));
  return join(list, ", ");
}

// "58.7 GB inside its node (data 0.72 GB, tensor 58.0 GB)"; "" without bytes.
static std::string traffic_text(const std::map<std::string, LinkTraffic>& traffic, double LinkTraffic::*link,
                                const char* where) {
  std::map<std::string, double> parts;
  double sum = 0;
  for (auto& [axes, bytes] : traffic) sum += parts[axes] = bytes.*link;
  if (sum == 0) return "";
  auto text = [](double bytes) { return format_si(bytes, "B"); };
  const std::string by_axes = traffic.size() > 1 ? fmt::format(" ({})", by_axes_text(parts, text)) : "";
  return fmt::format("{} {}{}", text(sum), where, by_axes);
}

static std::string traffic_line(const PredictedStep& s) {
  std::vector<std::string> parts;
  for (auto& [link, where] :
       {std::pair{&LinkTraffic::in_node, s.collectives.nodes > 1 ? "inside its node" : "to others"},
        std::pair{&LinkTraffic::between_nodes, "to other nodes"}})
    if (std::string text = traffic_text(s.traffic, link, where); !text.empty()) parts.push_back(text);
  return parts.empty() ? "" : fmt::format("            a rank sends {}\n", join(parts, ", and "));
}

std::string ranks_line(const PredictedStep& s) {
  if (s.collectives.ranks == 0) return "";
  const CollectivesSource& c = s.collectives;
  std::string from = !c.measured ? "by the data sheet's link, as NCCL used it between two H200"
                                 : fmt::format("as measured between {} ranks ({}, {})", c.ranks, printable(c.library),
                                               printable(c.date.substr(0, 10)));
  if (c.measured && c.ranks != s.ranks) from += fmt::format(" and scaled to {}", s.ranks);
  if (c.copied) from += "; copy engines as between two H200";
  const std::string where = c.nodes > 1 ? fmt::format("{} nodes of {} GPUs", c.nodes, c.node_gpus) : "one host";
  const std::string hidden = s.hidden_collectives_ms > 0.005 * s.collectives_ms
                                 ? format_duration(s.hidden_collectives_ms / 1e3) + " more is hidden"
                                 : "none is hidden";
  std::string text = fmt::format("            {} ranks of {}; collectives take {}, {}; {}\n", s.ranks, where,
                                 format_duration(s.collectives_ms / 1e3), from, hidden);
  if (s.collectives_by_axes.size() > 1)
    text += fmt::format("            by axis: {}\n",
                        by_axes_text(s.collectives_by_axes, [](double ms) { return format_duration(ms / 1e3); }));
  text += traffic_line(s);
  if (s.waiting_ms > 0)
    text += fmt::format("            waiting for the slowest rank {}: steps of a rank vary by {:.1f}% ({})\n",
                        format_duration(s.waiting_ms / 1e3), 100 * s.spread.share,
                        s.spread.source == "calibration" ? "standard deviation, by the calibration"
                                                         : "standard deviation, measured on two H200");
  if (c.nodes > 1)
    text += fmt::format(
        "            between nodes at {} for each GPU ({}), by NCCL's model of its rings and trees; Crest never\n"
        "            measured several nodes, so the range allows a factor of {:.1f} for collectives\n",
        format_si(c.network_bytes_per_second, "B/s"), printable(c.network), c.factor);
  return text;
}

std::string transfers_line(const PredictedStep& s) {
  if (s.host_link.per_second <= 0) return "";
  bool state = false, activations = false;
  for (auto& row : s.profile.instrs)
    if (crosses_host_link(row)) (row.phase == "update" ? state : activations) = true;
  const char* what = state && activations ? "state and activations move" : state ? "state moves" : "activations move";
  const char* way = state ? "to the device and back" : "to the host and back";
  return fmt::format("            {} {} at {} ({}), {} of it exposed\n", what, way,
                     format_si(s.host_link.per_second, "B/s"), s.host_link.source,
                     format_duration(s.transfers_ms / 1e3));
}

std::string count_of(double n, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(n), noun, n == 1 ? "" : "s");
}

std::string training_line(const PredictedStep& s, double total) {
  if (total <= 0) return "";
  double steps = std::ceil(total / double(s.tokens)), all = steps * s.ms / 1e3;
  return fmt::format("            {}: {}, {} ({} to {})\n", count_of(total, "token"), count_of(steps, "step"),
                     format_duration(all), format_duration(all * s.low_ms / s.ms),
                     format_duration(all * s.high_ms / s.ms));
}

}  // namespace crest
