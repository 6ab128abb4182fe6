// Waiting for an event, where a test would sleep: a slow or loaded machine only makes it longer.
#pragma once
#include <chrono>
#include <thread>

#include "core/timer.h"

namespace crest::test {

// No event takes as long, on any machine, if it comes at all.
inline constexpr double longest_wait = 240;

// Asks until happened() is true; false: it was not within `seconds`.
template <class Happened>
bool wait_until(Happened happened, double seconds = longest_wait) {
  Timer timer;
  for (auto pause = std::chrono::microseconds(200); !happened();) {
    if (timer.seconds() > seconds) return happened();
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::milliseconds(10)) pause += pause / 4;  // slow events are polled less often
  }
  return true;
}

}  // namespace crest::test
