// Steps of several ranks, measured by crest bench and crest profile in separate processes. A crash
// there does not end a search.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/recipe.h"
#include "profile/profile.h"

namespace crest {

struct ProcessRuns {
  std::vector<std::string> flags;  // for each command: the device and its libraries
  uint64_t seed = 1337;

  // Median milliseconds of a step. samples 0: until it is known to 1%, within max_seconds. Throws
  // does_not_fit, and `interrupted`.
  double step_ms(const Recipe& resolved, double max_seconds, int samples = 0) const;
  // The rows of a step of one rank with times, on a GPU or on `threads` threads of a CPU.
  Profile profile(const Recipe& resolved, double max_seconds, int threads) const;
};

// The same step with one rank, without settings for several.
Recipe one_rank_of(Recipe recipe);

}  // namespace crest
