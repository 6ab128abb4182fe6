#include "tune/process_runs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "host/own_process.h"
#include "plan/recipe_settings.h"

namespace crest {

namespace {

std::vector<std::string> command(const char* name, const ProcessRuns& runs, const Recipe& recipe, double max_seconds) {
  std::vector<std::string> words = {name, "--json", "--no-store", fmt::format("--seed={}", runs.seed),
                                    fmt::format("--max-seconds={}", max_seconds)};
  for (auto& flag : recipe_flags(recipe)) words.push_back(flag);
  words.insert(words.end(), runs.flags.begin(), runs.flags.end());
  return words;
}

}  // namespace

double ProcessRuns::step_ms(const Recipe& recipe, double max_seconds, int samples) const {
  std::vector<std::string> words = command("bench", *this, recipe, max_seconds);
  words.emplace_back("--no-mfu");
  if (samples > 0) words.push_back(fmt::format("--samples={}", samples));
  return run_own_process(words).at(0).at("step_ms_median");
}

Recipe one_rank_of(Recipe recipe) {
  recipe.ranks = 1, recipe.mesh = Mesh();
  for (const char* of_ranks :
       {"shard", "reduce", "bucket", "gather", "comm-dtype", "stages", "schedule-pipeline", "tensor-overlap"})
    recipe.pass_settings.erase(of_ranks);
  return recipe;
}

Profile ProcessRuns::profile(const Recipe& recipe, double max_seconds, int threads) const {
  std::vector<std::string> words = command("profile", *this, recipe, max_seconds);
  if (threads > 0) {
    std::erase_if(words, [](auto& word) { return word.starts_with("--threads="); });
    words.push_back(fmt::format("--threads={}", threads));
  }
  return profile_from_json(run_own_process(words), "crest profile");
}

}  // namespace crest
