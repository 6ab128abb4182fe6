#include "cli/rank_flags.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "comm/launch.h"
#include "core/error.h"
#include "core/text.h"
#include "device/rank_device.h"
#include "host/stop_signal.h"
#include "passes/pass.h"
#include "train/restarts.h"

namespace crest {

void add_rank_options(CLI::App& app, GivenSettings& given) { add_settings(app, rank_settings(), given); }

static int requested_ranks(const RecipeOptions& recipe) {
  if (recipe.has("ranks"))
    if (const std::string& text = recipe.given.at("ranks").back(); text.find(',') != std::string::npos)
      fail_usage(fmt::format("--ranks {} is a list", printable(text)), "--ranks",
                 "A command has one number of processes: run it once for each number.");
  return recipe.processes();
}

// A rank's share of the machine. Only rank 0 prints notes about it.
static void share(DeviceOptions& device, const RankGroup& group) {
  device.processes = group.local_size(), device.local_rank = group.local_rank();
  device.notes = group.leads();
}

int run_in_ranks(RecipeOptions& recipe, DeviceOptions& device, const GivenSettings& given, const RankCommand& command,
                 const std::function<int(RankGroup*)>& work) {
  RankOptions options;
  Settings().add(rank_settings(), &options).add(restart_settings(), &options).apply(given);
  int requested = requested_ranks(recipe);
  auto environment = rank_environment();
  bool several = environment && environment->size > 1, launched = several || is_launched();
  if (!launched && (requested > 1 || options.restarts > 0)) {
    if (requested > 1) {
      device.libraries.use();
      check_devices_of_ranks(device.device, requested);
    }
    StopSignal signal;
    LaunchOptions launch = {.ranks = requested,
                            .stop = StopSignal::requested,
                            .stop_patience = 1e9,
                            .less_memory = "use a smaller --batch or fewer --ranks"};
    return launch_training(launch, {options.restarts, command.continued});
  }
  if (!launched) return work(nullptr);
  if (!several) return run_rank([&] { return work(nullptr); });
  const char* flag = recipe.has("ranks") ? "ranks" : "mesh";
  if (command.keep && recipe.has(flag) && requested != environment->size)
    fail_usage(fmt::format("--{} {}, but {} started {} processes", flag, printable(recipe.given[flag].back()),
                           environment->launcher, environment->size),
               std::string("--") + flag,
               flag == std::string("mesh") ? fmt::format("Give a mesh of {}, or leave it out: all are data ranks then.",
                                                         format_number_of(environment->size, "rank"))
                                           : "Leave it out when another program starts the ranks.");
  if (command.keep && options.restarts > 0 && !is_launched())
    fail_usage(fmt::format("--restarts {}, but {} started the processes", options.restarts, environment->launcher),
               "--restarts", "Leave it out: that program restarts them (torchrun --max-restarts), or nobody does.");
  recipe.given["ranks"] = {std::to_string(environment->size)};
  if (requested != environment->size) recipe.given["mesh"].clear();
  return run_rank([&] {
    auto group = RankGroup::join(*environment, options);
    share(device, *group);
    int code = work(group.get());
    group->done();
    return code;
  });
}

}  // namespace crest
