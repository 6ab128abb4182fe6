#include "comm/rank_options.h"

#include <algorithm>

namespace crest {

double RankOptions::longest_wait() const { return std::max(30.0, watchdog); }

const std::vector<Setting>& rank_settings() {
  static const std::vector<Setting> rows = {
      setting<&RankOptions::watchdog>({.name = "watchdog",
                                       .group = "Ranks",
                                       .help = "time without an answer from a process until the run ends",
                                       .unit = "seconds",
                                       .min = 1,
                                       .max = 86400,
                                       .identity = false,
                                       .stored = false,
                                       .resume = OnResume::accepts})};
  return rows;
}

const std::vector<Setting>& restart_settings() {
  static const std::vector<Setting> rows = {setting<&RankOptions::restarts>(
      {.name = "restarts",
       .group = "Ranks",
       .help = "how often Crest restarts a run from its last checkpoint after it lost a process",
       .min = 0,
       .max = 1'000'000,
       .identity = false,
       .stored = false,
       .resume = OnResume::accepts})};
  return rows;
}

}  // namespace crest
