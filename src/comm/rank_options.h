// How the processes of a run watch each other: --watchdog.
#pragma once
#include <vector>

#include "settings/setting.h"

namespace crest {

struct RankOptions {
  double watchdog = 30;  // seconds
};

// Rows bound to RankOptions.
const std::vector<Setting>& rank_settings();

}  // namespace crest
