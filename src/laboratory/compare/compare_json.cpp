#include "compare/compare.h"

namespace crest {

namespace {

Json factors_json(const FactorMs& parts) {
  Json json = Json::object();
  for (size_t f = 0; f < parts.size(); ++f)
    if (parts[f] != 0) json[name(Factor(f))] = parts[f];
  return json;
}

Json to_json(const ComparedRun& r) {
  return {{"title", r.title},
          {"uid", r.uid},
          {"name", r.name},
          {"kind", r.kind},
          {"phase", r.phase},
          {"device", r.device},
          {"step_ms", r.step_ms},
          {"samples", r.samples},
          {"tokens", r.tokens},
          {"tokens_per_second", r.tokens_per_second},
          {"launches", r.launches},
          {"busy_ms", r.busy_ms},
          {"idle_ms", r.idle_ms},
          {"planned_bytes", r.planned_bytes},
          {"measured_peak_bytes", r.measured_peak_bytes},
          {"device_peak_bytes", r.device_peak_bytes},
          {"profiled", r.profiled},
          {"out_of_memory", r.out_of_memory}};
}

Json to_json(const GroupSide& g) {
  return {{"instructions", g.instructions}, {"calls", g.calls},           {"layers", g.layers}, {"ms", g.ms},
          {"floor_ms", g.floor_ms},         {"flops", g.flops},           {"bytes", g.bytes},   {"ops", g.ops},
          {"kernels", g.kernels},           {"arithmetic", g.arithmetic}, {"types", g.types},   {"type", g.type}};
}

Json to_json(const Cause& c) {
  return {{"label", c.label},
          {"phase", c.phase},
          {"roles", c.roles},
          {"op_class", c.op_class},
          {"ms", c.ms},
          {"ms_per_token", c.ms_per_token},
          {"share", c.share},
          {"factors", factors_json(c.factors)},
          {"main_factor", name(c.main_factor)},
          {"significant", c.significant},
          {"levers", c.settings},
          {"sentence", c.sentence},
          {"a", to_json(c.a)},
          {"b", to_json(c.b)}};
}

Json to_json(const PeakHolder& p) {
  return {{"program", p.program}, {"op", p.op}, {"phase", p.phase}, {"scope", p.scope}, {"live_bytes", p.live_bytes}};
}

Json to_json(const std::vector<LossRow>& rows) {
  Json list = Json::array();
  for (auto& r : rows) list.push_back({{"step", r.step}, {"a", r.a}, {"b", r.b}});
  return list;
}

template <class T, class F>
Json list_of(const std::vector<T>& items, F to) {
  Json list = Json::array();
  for (auto& i : items) list.push_back(to(i));
  return list;
}

Json to_json(const Scaling& s) {
  return {{"few", s.few},
          {"more", s.more},
          {"few_ranks", s.few_ranks},
          {"more_ranks", s.more_ranks},
          {"same_work", s.same_work},
          {"step_ms", s.step_ms},
          {"ideal_ms", s.ideal_ms},
          {"lost_ms", s.lost_ms()},
          {"efficiency", s.efficiency()},
          {"noise_floor", s.noise_floor},
          {"beyond_noise", s.beyond_noise},
          {"rows", list_of(s.rows, [](auto& r) {
             return Json{{"label", r.label}, {"ms", r.ms}, {"detail", r.detail}};
           })}};
}

}  // namespace

Json to_json(const RunComparison& c) {
  const NoiseCheck& n = c.noise;
  Json waterfall = list_of(c.waterfall, [](auto& w) {
    return Json{{"factor", name(w.factor)},
                {"label", label(w.factor)},
                {"ms", w.ms},
                {"ms_per_token", w.ms_per_token},
                {"detail", w.detail}};
  });
  Json memory_causes = list_of(c.memory_causes, [](auto& m) {
    return Json{{"label", m.label},
                {"category", m.category},
                {"a", m.a},
                {"b", m.b},
                {"blocks_a", m.blocks_a},
                {"blocks_b", m.blocks_b},
                {"quadratic", m.quadratic},
                {"sentence", m.sentence}};
  });
  Json attribution = {{"method", name(c.attribution.method)}, {"missing", c.attribution.missing}};
  if (c.attribution.method != AttributionMethod::work)
    attribution["interaction_ms"] = c.attribution.interaction_ms, attribution["error_ms"] = c.attribution.error_ms;
  return {{"a", to_json(c.a)},
          {"b", to_json(c.b)},
          {"sentences", c.sentences},
          {"differences", list_of(c.differences,
                                  [](auto& d) {
                                    return Json{{"section", d.section}, {"key", d.key}, {"a", d.a}, {"b", d.b}};
                                  })},
          {"noise",
           {{"tested", n.tested},
            {"ratio", n.ratio},
            {"ratio_low", n.ratio_interval.low},
            {"ratio_high", n.ratio_interval.high},
            {"floor", n.floor},
            {"floor_source", n.floor_source},
            {"verdict", name(n.verdict)},
            {"row_noise", c.row_noise}}},
          {"per_token", c.per_token},
          {"join", c.join},
          {"difference_ms", c.step_difference()},
          {"waterfall", waterfall},
          {"residual_share", c.residual_share},
          {"causes", list_of(c.causes, [](auto& x) { return to_json(x); })},
          {"levers", list_of(c.settings,
                             [](auto& e) {
                               Json json = {{"lever", e.setting},
                                            {"a", e.a},
                                            {"b", e.b},
                                            {"ms", e.ms},
                                            {"share", e.share},
                                            {"ms_per_token", e.ms_per_token},
                                            {"sentence", e.sentence}};
                               if (e.measured) {
                                 json["alone_ms"] = e.measured->alone_ms, json["last_ms"] = e.measured->last_ms;
                                 json["error_ms"] = e.measured->error_ms;
                               }
                               return json;
                             })},
          {"attribution", attribution},
          {"memory",
           {{"by_category", list_of(c.memory,
                                    [](auto& m) {
                                      return Json{{"category", m.label}, {"a", m.a}, {"b", m.b}};
                                    })},
            {"blocks", memory_causes},
            {"peak_a", to_json(c.peak_a)},
            {"peak_b", to_json(c.peak_b)}}},
          {"training",
           {{"loss", to_json(c.training.loss)},
            {"val_loss", to_json(c.training.val_loss)},
            {"tokens_per_second_a", c.training.tokens_per_second_a},
            {"tokens_per_second_b", c.training.tokens_per_second_b}}},
          {"scaling", c.scaling ? to_json(*c.scaling) : Json(nullptr)},
          {"notes", c.notes}};
}

}  // namespace crest
