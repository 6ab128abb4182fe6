// Starts the ranks of a training run, and starts them again when one is lost: --restarts.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch.h"

namespace crest {

// A rank's knowledge of the run it continues for its launcher.
struct Restarted {
  int64_t first_step = 0;  // start of the command
  double seconds = 0;      // since the command started
};
// Of this process; empty if it was not started again.
std::optional<Restarted> restarted();

// In rank 0: the folder belongs to this run, and can be continued or overwritten.
void tell_run_folder(const std::string& folder, int64_t first_step);

struct RestartOptions {
  int restarts = 0;
  // The arguments to continue the run in a folder, the program first.
  std::function<std::vector<std::string>(const std::string& folder)> continued;
};

// launch_ranks(). When a rank is lost, the ranks are started again from the last checkpoint, or
// from the beginning, at most `restarts` times. Not after an error reported by a rank itself, nor
// when the run was interrupted, nor when it fails again at the same step without a new checkpoint.
int launch_training(LaunchOptions launch, const RestartOptions& restart);

}  // namespace crest
