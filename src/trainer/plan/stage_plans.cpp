#include "plan/stage_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "passes/recompute.h"
#include "passes/stages.h"

namespace crest {

std::vector<std::string> stage_work(const Recipe& recipe, int stage) {
  const std::vector<int64_t> layers = stage_layers(recipe);
  const std::vector<std::string> recompute = recompute_by_layer(recipe.recompute, recipe.model.layers);
  const int ranks = recipe.layout().size(Axis::pipeline);
  // The ends also have the embedding and the head. Layers of a pattern differ.
  const bool own = stage == 0 || stage == ranks - 1 || !recipe.model.pattern.empty();
  std::vector<std::string> work = {own ? fmt::format("{}", stage) : ""};
  int64_t first = 0;
  for (size_t part = 0; part < layers.size(); first += layers[part++]) {
    if (int(part % size_t(ranks)) != stage) continue;
    work.insert(work.end(), recompute.begin() + first, recompute.begin() + first + layers[part]);
    work.push_back("");
  }
  return work;
}

std::vector<CompiledSession> distinct_stages(CompiledSession session, const CompileOptions& options) {
  const int stages = session.recipe.layout().size(Axis::pipeline);
  auto slots = [&](int stage) {
    if (session.schedule.slots.empty()) return 0;
    const std::vector<int>& of_chunks = session.schedule.slots[size_t(stage)];
    return std::accumulate(of_chunks.begin(), of_chunks.end(), 0);
  };
  std::map<std::vector<std::string>, int> with_most_slots;
  for (int stage = 0; stage < stages; ++stage) {
    auto [it, is_new] = with_most_slots.try_emplace(stage_work(session.recipe, stage), stage);
    if (!is_new && slots(stage) > slots(it->second)) it->second = stage;
  }
  std::set<int> chosen;
  for (auto& [work, stage] : with_most_slots) chosen.insert(stage);
  chosen.erase(session.stage);
  std::vector<CompiledSession> list = {std::move(session)};
  for (int stage : chosen) list.push_back(for_stage(list[0], stage, options));
  return list;
}

int64_t planned_bytes(const CompiledSession& s, int stage) {
  std::map<ProgramKind, int64_t> slots;  // of all chunks
  for (const SlotArea& area : s.areas) {
    const bool scheduled = area.kind == ProgramKind::train;
    slots[area.kind] +=
        area.bytes * (scheduled ? s.schedule.slots.at(size_t(stage)).at(size_t(area.chunk)) : area.slots);
  }
  int64_t most = 0;
  for (auto& [kind, bytes] : slots) most = std::max(most, bytes);
  return s.planned_bytes() - s.slot_bytes + most;
}

int64_t limited_bytes(const CompiledSession& s, int stage) {
  return planned_bytes(s, stage) + s.limited_bytes() - s.planned_bytes();
}

CompiledSession largest_stage(CompiledSession session, const CompileOptions& options) {
  std::vector<CompiledSession> stages = distinct_stages(std::move(session), options);
  return std::move(*std::max_element(stages.begin(), stages.end(),
                                     [](auto& a, auto& b) { return a.limited_bytes() < b.limited_bytes(); }));
}

std::string stages_that_fit(const CompiledSession& session, int64_t limit) {
  if (session.recipe.layout().size(Axis::pipeline) == 1 || chunks_of_rank(session.recipe) > 1) return "";
  CompiledSession changed = session;
  // Bytes by stage, number of layers and (if layers differ) first layer: a stage is compiled once.
  std::map<std::array<int64_t, 3>, int64_t> known;
  const bool alike = session.recipe.model.pattern.empty();
  std::vector<int64_t> layers = stage_layers(session.recipe);
  for (std::set<std::vector<int64_t>> tried; tried.insert(layers).second;) {
    std::vector<int64_t> bytes;
    int64_t first = 0;
    for (int stage = 0; stage < int(layers.size()); ++stage) {
      auto [it, is_new] = known.try_emplace({stage, layers[size_t(stage)], alike ? 0 : first});
      if (is_new) it->second = for_stage(changed, stage, {.verify = false}).limited_bytes();
      bytes.push_back(it->second);
      first += layers[size_t(stage)];
    }
    const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
    const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
    if (bytes[size_t(most)] <= limit) return stages_text(layers);
    if (layers[size_t(most)] == 1) return "";
    --layers[size_t(most)], ++layers[size_t(least)];
    changed.recipe.pass_settings["stages"] = stages_text(layers);
    changed.schedule = {};
  }
  return "";
}

}  // namespace crest
