#include "train/defaults_of_first.h"

#include <nlohmann/json.hpp>

#include "comm/rank_group.h"
#include "passes/recompute.h"

namespace crest {

static constexpr const char* chosen_settings[] = {"stages", "fp8-weights"};

std::string chosen_defaults(const Recipe& r) {
  nlohmann::json chosen = {{"seq", r.seq_length()}, {"precision", r.precision}, {"recompute", r.recompute}};
  for (const char* name : chosen_settings)
    if (auto it = r.pass_settings.find(name); it != r.pass_settings.end()) chosen[name] = it->second;
  return chosen.dump();
}

Recipe take_defaults(Recipe own, const std::string& of_first) {
  const auto first = nlohmann::json::parse(of_first);
  if (own.seq == 0) own.seq = first["seq"].get<int64_t>();
  if (own.precision == "auto") own.precision = first["precision"].get<std::string>();
  if (!recompute_budget(own.recompute).empty()) own.recompute = first["recompute"].get<std::string>();
  for (const char* name : chosen_settings)
    if (first.contains(name))
      if (std::string& text = own.pass_settings.emplace(name, "auto").first->second; text == "auto")
        text = first[name].get<std::string>();
  return own;
}

Recipe with_defaults_of_first(RankGroup* group, const Recipe& given,
                              const std::function<Recipe(const Recipe&)>& choose) {
  if (!group) return choose(given);
  if (!group->leads()) return choose(take_defaults(given, group->from_first(std::string())));
  Recipe chosen = choose(given);
  group->from_first(chosen_defaults(chosen));
  return chosen;
}

}  // namespace crest
