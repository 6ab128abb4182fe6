// How the processes of a run watch each other: --watchdog, --restarts.
#pragma once
#include <vector>

#include "settings/setting.h"

namespace crest {

struct RankOptions {
  double watchdog = 30;  // seconds
  int restarts = 0;
};

// Rows bound to RankOptions; restart_settings: of commands that can be continued.
const std::vector<Setting>& rank_settings();
const std::vector<Setting>& restart_settings();

}  // namespace crest
