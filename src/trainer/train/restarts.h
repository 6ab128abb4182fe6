// Starts the ranks of a training run, and restarts them if one is lost: --restarts.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch.h"

namespace crest {

// A restarted rank's knowledge of the run.
struct Restarted {
  int64_t first_step = 0;  // start of the command
  double seconds = 0;      // since the command started
};
// For this process; nullopt: it was not restarted.
std::optional<Restarted> restarted();

// Rank 0 reports its folder: it belongs to this run, and can be continued or overwritten.
void tell_run_folder(const std::string& folder, int64_t first_step);

struct RestartOptions {
  int restarts = 0;
  // The command to continue the run in a folder.
  std::function<std::vector<std::string>(const std::string& folder)> continued;
};

// launch_ranks(), with restarts. If a rank is lost, restarts all ranks from the last checkpoint, or
// from the beginning, at most `restarts` times. Does not restart after an error reported by a rank
// itself, after an interrupt, or if the run fails again at the same step without a new checkpoint.
int launch_training(LaunchOptions launch, const RestartOptions& restart);

}  // namespace crest
