// The time limit of a search, and estimates for its parts.
#pragma once
#include <algorithm>

#include "core/timer.h"

namespace crest {

// Each part ends at a share of the limit: planning, measuring one by one, and at 1 the interleaved
// rounds. Times are in seconds, or milliseconds as named.
class SearchTime {
 public:
  explicit SearchTime(double limit_seconds) : limit_(limit_seconds) {}  // 0: none

  bool limited() const { return limit_ > 0; }
  double seconds() const { return timer_.seconds(); }  // since the start
  double planning_ends() const { return planning_ends_; }
  double measuring_ends() const { return measuring_ends_; }
  // Device limits and first steps may have taken most of the time. Planning gets at least a quarter
  // of the rest, and measuring half of the remainder.
  void divide_the_rest() {
    if (!limited()) return;
    const double now = seconds() / limit_;
    planning_ends_ = std::max(planning_ends_, now + (1 - now) / 4);
    measuring_ends_ = std::max(measuring_ends_, planning_ends_ + (1 - planning_ends_) / 2);
  }

  bool late(double share) const { return limited() && seconds() > share * limit_; }
  // Time left until this share.
  double left(double share) const { return limited() ? std::max(0.0, share * limit_ - seconds()) : 1e9; }

  // A measurement took `seconds`, its step `ms`.
  void measured(double seconds, double ms) { last_seconds_ = seconds, last_ms_ = ms; }
  // Estimated from the last one: the runs of a measurement, and its overhead.
  double to_measure(double ms) const {
    constexpr double runs = 20;
    return runs * 1e-3 * ms + std::max(0.0, last_seconds_ - runs * 1e-3 * last_ms_);
  }
  // A compiled and warm runner for the interleaved rounds.
  double to_prepare() const { return last_seconds_ / 4; }

 private:
  double limit_;
  Timer timer_;
  double planning_ends_ = 0.5, measuring_ends_ = 0.75;
  double last_seconds_ = 0, last_ms_ = 1;
};

}  // namespace crest
