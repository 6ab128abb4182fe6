// Waiting for work that never ends if another rank is gone: its part of a collective is missing.
#pragma once
#include <chrono>
#include <optional>

namespace crest::cuda {

// Asks `done` until it is true, and calls `look` every 20 ms, which throws if there is nothing to
// wait for. False: it was not done within `seconds`. Asking again at once costs no latency.
template <class Done, class Look>
bool watched_wait(const Done& done, const Look& look, std::optional<double> seconds = {}) {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now(), looked = begin;
  while (!done()) {
    auto now = Clock::now();
    if (now < looked + std::chrono::milliseconds(20)) continue;
    looked = now;
    look();
    if (seconds && now > begin + std::chrono::duration<double>(*seconds)) return false;
  }
  return true;
}

}  // namespace crest::cuda
