#include "train/spike_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace crest {

double SpikeWatch::mean_until(size_t end) const {
  double sum = 0;
  for (size_t i = end - window; i < end; ++i) sum += steps_[i].loss;
  return sum / window;
}

double SpikeWatch::noise() const {
  std::vector<double> differences;
  for (size_t i = 1; i + window < steps_.size(); ++i)
    differences.push_back(std::abs(steps_[i].loss - steps_[i - 1].loss));
  const auto middle = differences.begin() + ptrdiff_t(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  return *middle * 1.4826 / std::sqrt(2.0);
}

std::optional<SpikeWatch::Event> SpikeWatch::back_or_level(int64_t step) {
  const double now = mean_until(steps_.size());
  if (now <= back_below_) {
    Event back = *high_;
    back.rises = false, back.to = now;
    high_.reset();
    return back;
  }
  if (step - high_since_ < history) return {};
  high_.reset();
  while (steps_.front().step < high_since_) steps_.pop_front();
  return {};
}

std::optional<SpikeWatch::Event> SpikeWatch::add(int64_t step, double loss) {
  if (!std::isfinite(loss)) return {};
  steps_.push_back({step, loss});
  if (steps_.size() > history + window) steps_.pop_front();
  if (high_) return back_or_level(step);
  if (steps_.size() < least) return {};
  Event e = {true, INFINITY, mean_until(steps_.size()), noise(), 0};
  for (size_t end = window; end + window <= steps_.size(); ++end)
    if (const double mean = mean_until(end); mean <= e.from) e.from = mean, e.calm_step = steps_[end - 1].step;
  const double rise = e.to - e.from;
  if (rise <= 8 * e.noise / std::sqrt(double(window)) || rise <= 0.05 * std::abs(e.from)) return {};
  high_ = e, high_since_ = step, back_below_ = e.from + rise / 2;
  return e;
}

}  // namespace crest
