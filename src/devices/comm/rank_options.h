// How the processes of a run watch each other: --watchdog, --restarts.
#pragma once
#include <vector>

#include "settings/setting.h"

namespace crest {

struct RankOptions {
  double watchdog = 30;  // seconds
  int restarts = 0;

  // Seconds a rank waits for another rank to start, to answer, or to move in a collective.
  double longest_wait() const;
};

// Rows bound to RankOptions. restart_settings: for commands that can continue.
const std::vector<Setting>& rank_settings();
const std::vector<Setting>& restart_settings();

}  // namespace crest
