#include "cli/rank_flags.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "comm/gloo.h"
#include "comm/launch.h"
#include "core/error.h"
#include "host/stop_signal.h"
#include "passes/pass.h"

namespace crest {

void add_rank_options(CLI::App& app, GivenSettings& given) { add_settings(app, rank_settings(), given); }

static int requested_ranks(const RecipeOptions& recipe) {
  Recipe parsed;
  if (recipe.has("ranks")) Settings(settings_of(parsed)).apply({{"ranks", recipe.given.at("ranks")}});
  return parsed.ranks;
}

int run_in_ranks(RecipeOptions& recipe, const GivenSettings& given, bool keep,
                 const std::function<int(RankGroup*)>& work) {
  RankOptions options;
  Settings().add(rank_settings(), &options).apply(given);
  int requested = requested_ranks(recipe);
  auto environment = rank_environment();
  bool launched = environment && environment->size > 1;
  if (launched || requested > 1)
    if (std::string problem = gloo_problem(); !problem.empty()) fail(problem, "--ranks");
  if (!launched && requested > 1) {
    StopSignal signal;
    return launch_ranks({.ranks = requested,
                         .stop = StopSignal::requested,
                         .stop_patience = 1e9,
                         .less_memory = "use a smaller --batch or fewer --ranks"});
  }
  if (!launched) return work(nullptr);
  if (keep && recipe.has("ranks") && requested != environment->size)
    fail_usage(
        fmt::format("--ranks {}, but {} started {} processes", requested, environment->launcher, environment->size),
        "--ranks", "Leave it out when another program starts the ranks.");
  recipe.given["ranks"] = {std::to_string(environment->size)};
  return run_rank([&] {
    auto group = RankGroup::join(*environment, options);
    int code = work(group.get());
    group->done();
    return code;
  });
}

void share_device(DeviceOptions& options, const RankGroup* group) {
  if (!group) return;
  options.processes = group->local_size();
  options.notes = group->leads();
}

}  // namespace crest
