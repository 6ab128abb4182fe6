// Waiting for work that never ends if another rank is lost: its part of a collective is missing.
#pragma once
#include <optional>

#include "core/timer.h"

namespace crest::cuda {

// Asks `done` until it is true, and calls `look` every 20 ms; `look` throws if there is nothing to
// wait for. False: not done within `seconds`. Asking again at once costs no latency.
template <class Done, class Look>
bool watched_wait(const Done& done, const Look& look, std::optional<double> seconds = {}) {
  Timer timer, since_look;
  while (!done()) {
    if (since_look.seconds() < 0.02) continue;
    since_look = {};
    look();
    if (seconds && timer.seconds() > *seconds) return false;
  }
  return true;
}

}  // namespace crest::cuda
