// Steps of several ranks, measured in processes of their own by crest bench and crest profile: what
// ends one of them does not end a search.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/recipe.h"
#include "profile/profile.h"

namespace crest {

struct ProcessRuns {
  std::vector<std::string> flags;  // of each command: the device and its libraries
  uint64_t seed = 1337;

  // Median milliseconds of a step. samples 0: until it is known to 1%, within max_seconds. Throws
  // does_not_fit, and `interrupted`.
  double step_ms(const Recipe& resolved, double max_seconds, int samples = 0) const;
  // The rows of a step of one rank with their times, on a GPU or on `threads` threads of a CPU.
  Profile profile(const Recipe& resolved, double max_seconds, int threads) const;
};

// The same step of one rank, and without what only several have.
Recipe one_rank_of(Recipe recipe);

}  // namespace crest
