// --ranks, --watchdog: a command that runs as several processes, here or under torchrun, mpirun or
// srun.
#pragma once
#include <functional>

#include "comm/rank_group.h"
#include "device/device_options.h"
#include "plan/recipe_settings.h"

namespace CLI {
class App;
}

namespace crest {

void add_rank_options(CLI::App& app, GivenSettings& given);

// work(null) in a single process; work(group) in a rank, after all ranks have joined. Without a
// launcher, --ranks of the recipe starts the ranks: copies of this command. Under one, its number
// of processes is the recipe's. keep: a --ranks that differs from it is an error (else: it comes
// from the file of a run that is continued). Returns the exit code.
int run_in_ranks(RecipeOptions& recipe, const GivenSettings& given, bool keep,
                 const std::function<int(RankGroup*)>& work);

// For a rank: its share of the device. Only rank 0 prints notes about it.
void share_device(DeviceOptions& options, const RankGroup* group);

}  // namespace crest
