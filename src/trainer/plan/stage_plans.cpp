#include "plan/stage_plans.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "passes/stages.h"

namespace crest {

std::vector<CompiledSession> all_stages(const CompiledSession& session, const CompileOptions& options) {
  std::vector<CompiledSession> all;
  for (int stage = 0; stage < session.recipe.layout().size(Axis::pipeline); ++stage)
    all.push_back(stage == session.stage ? session : for_stage(session, stage, options));
  return all;
}

CompiledSession largest_stage(CompiledSession session, const CompileOptions& options) {
  if (session.recipe.layout().size(Axis::pipeline) == 1) return session;
  std::vector<CompiledSession> all = all_stages(session, options);
  return std::move(*std::max_element(all.begin(), all.end(),
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
