// --ranks, --watchdog, --restarts: a command in several processes, here or under torchrun, mpirun
// or srun.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/rank_group.h"
#include "device/device_options.h"
#include "plan/recipe_settings.h"

namespace CLI {
class App;
}

namespace crest {

void add_rank_options(CLI::App& app, GivenSettings& given);

struct RankCommand {
  // Whether a --ranks different from a launcher's number of processes is an error. Otherwise it
  // comes from the file of a continued run.
  bool keep = true;
  // For a command with restart_settings().
  std::function<std::vector<std::string>(const std::string& folder)> continued = {};
};

// device: gets this rank's place. work(null) in a single process; work(group) in a rank, after all
// ranks have joined. Without a launcher, --ranks of the recipe (and --restarts) starts the ranks:
// copies of this command. Under one, its number of processes is the recipe's. Returns the exit
// code.
int run_in_ranks(RecipeOptions& recipe, DeviceOptions& device, const GivenSettings& given, const RankCommand& command,
                 const std::function<int(RankGroup*)>& work);

}  // namespace crest
