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
  // The rows of a step with their times, on one rank with `threads` threads of a CPU (0: a GPU).
  Profile one_rank(const Recipe& resolved, double max_seconds, int threads) const;
};

}  // namespace crest
