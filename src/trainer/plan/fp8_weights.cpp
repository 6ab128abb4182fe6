#include "plan/fp8_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "plan/stage_plans.h"

namespace crest {

std::vector<Recipe> fp8_weights_choices(const Recipe& recipe) {
  auto given = recipe.pass_settings.find("fp8-weights");
  const bool automatic = given == recipe.pass_settings.end() || given->second == "auto";
  if (recipe.precision != "fp8" || recipe.grad_accumulation == 1 || !automatic) return {recipe};
  std::vector<Recipe> list(2, recipe);
  list[0].pass_settings["fp8-weights"] = "keep";
  list[1].pass_settings["fp8-weights"] = "again";
  return list;
}

Recipe fp8_weights_within(const Recipe& recipe, const Device& device, int64_t limit, const SessionUse& use,
                          const std::function<void(const std::string&)>& note) {
  const std::vector<Recipe> choices = fp8_weights_choices(recipe);
  if (choices.size() == 1) return recipe;
  const CompileOptions quick = {.verify = false};
  std::vector<int64_t> bytes;
  for (const Recipe& choice : choices) {
    const std::vector<ProgramSpec> programs = session_programs(resolve(choice, device), use);
    bytes.push_back(largest_stage(compile(choice, device, programs, quick), quick).limited_bytes());
    if (bytes.back() <= limit) break;
  }
  const size_t best =
      bytes.back() <= limit ? bytes.size() - 1 : size_t(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
  const Recipe& chosen = choices[best];
  if (note && best > 0 && bytes[best] <= limit)
    note(
        fmt::format("note     8-bit weights are made again in each micro step: keeping them needs {} of {} "
                    "(--fp8-weights changes it)",
                    format_bytes(double(bytes[0])), format_bytes(double(limit))));
  return chosen;
}

}  // namespace crest
