#include "comm/rank_options.h"

namespace crest {

const std::vector<Setting>& rank_settings() {
  static const std::vector<Setting> rows = {
      setting<&RankOptions::watchdog>({.name = "watchdog",
                                       .group = "Ranks",
                                       .help = "time after which a process that does not answer ends the run",
                                       .unit = "seconds",
                                       .least = 1,
                                       .most = 86400,
                                       .identity = false,
                                       .stored = false,
                                       .resume = OnResume::accepts})};
  return rows;
}

}  // namespace crest
