#include "cli/rank_flags.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "comm/gloo.h"
#include "comm/launch.h"
#include "core/error.h"
#include "core/text.h"
#include "host/stop_signal.h"
#include "passes/pass.h"
#include "train/restarts.h"

namespace crest {

void add_rank_options(CLI::App& app, GivenSettings& given) { add_settings(app, rank_settings(), given); }

static int requested_ranks(const RecipeOptions& recipe) {
  Recipe parsed;
  if (!recipe.has("ranks")) return parsed.ranks;
  const std::string& text = recipe.given.at("ranks").back();
  if (text.find(',') != std::string::npos)
    fail_usage(fmt::format("--ranks {} is a list", printable(text)), "--ranks",
               "A command has one number of processes: run it once for each number.");
  Settings(settings_of(parsed)).apply({{"ranks", {text}}});
  return parsed.ranks;
}

int run_in_ranks(RecipeOptions& recipe, const GivenSettings& given, const RankCommand& command,
                 const std::function<int(RankGroup*)>& work) {
  RankOptions options;
  Settings().add(rank_settings(), &options).add(restart_settings(), &options).apply(given);
  int requested = requested_ranks(recipe);
  auto environment = rank_environment();
  bool several = environment && environment->size > 1, launched = several || is_launched();
  if (several || requested > 1)
    if (std::string problem = gloo_problem(); !problem.empty()) fail(problem, "--ranks");
  if (!launched && (requested > 1 || options.restarts > 0)) {
    StopSignal signal;
    LaunchOptions launch = {.ranks = requested,
                            .stop = StopSignal::requested,
                            .stop_patience = 1e9,
                            .less_memory = "use a smaller --batch or fewer --ranks"};
    return launch_training(launch, {options.restarts, command.continued});
  }
  if (!launched) return work(nullptr);
  if (!several) return run_rank([&] { return work(nullptr); });
  if (command.keep && recipe.has("ranks") && requested != environment->size)
    fail_usage(
        fmt::format("--ranks {}, but {} started {} processes", requested, environment->launcher, environment->size),
        "--ranks", "Leave it out when another program starts the ranks.");
  if (command.keep && options.restarts > 0 && !is_launched())
    fail_usage(fmt::format("--restarts {}, but {} started the processes", options.restarts, environment->launcher),
               "--restarts", "Leave it out: that program restarts them (torchrun --max-restarts), or nobody does.");
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
