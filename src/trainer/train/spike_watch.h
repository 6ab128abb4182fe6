// Notices a training loss that rises far above its noise.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

namespace crest {

class SpikeWatch {
 public:
  static constexpr int window = 5;     // averaged steps
  static constexpr int history = 100;  // steps to compare with
  static constexpr int least = 30;     // steps before the first verdict

  struct Event {
    bool rises;         // false: the loss is back at its level before the rise
    double from, to;    // means of `window` steps: the lowest one in `history`, and the newest one
    double noise;       // standard deviation of a single step's loss
    int64_t calm_step;  // the last step of the lowest mean
  };

  // Takes the loss of a step, and ignores NaN and infinity. A rise counts if it exceeds 8 standard
  // deviations of a mean of `window` steps, and 5% of the loss before. The standard deviation of
  // a step is 1.4826 / sqrt(2) times the median difference of neighboring steps. Each rise is
  // reported once. A loss that stays high for `history` steps is the new level.
  std::optional<Event> add(int64_t step, double loss);

 private:
  struct Step {
    int64_t step;
    double loss;
  };
  double mean_until(size_t end) const;  // of the `window` steps before index `end`
  double noise() const;
  std::optional<Event> back_or_level(int64_t step);

  std::deque<Step> steps_;
  std::optional<Event> high_;
  double back_below_ = 0;
  int64_t high_since_ = 0;
};

}  // namespace crest
