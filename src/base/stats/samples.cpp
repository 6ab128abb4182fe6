#include "stats/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/timer.h"

namespace crest {

static constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
static constexpr double infinity = std::numeric_limits<double>::infinity();

Samples::Samples(std::vector<double> values) {
  values_.reserve(values.size());
  for (double v : values) add(v);
}

void Samples::add(double value) {
  if (!std::isfinite(value)) fail_internal(fmt::format("a measurement returned {}", value), "samples");
  values_.push_back(value);
}

double Samples::mean() const {
  if (empty()) return nan_value;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / double(count());
}

double Samples::std_dev() const {
  if (empty()) return nan_value;
  if (count() == 1) return 0;
  double m = mean(), sum = 0;
  for (double v : values_) sum += (v - m) * (v - m);
  return std::sqrt(sum / double(count() - 1));
}

double Samples::min() const { return empty() ? nan_value : *std::min_element(values_.begin(), values_.end()); }
double Samples::max() const { return empty() ? nan_value : *std::max_element(values_.begin(), values_.end()); }

double Samples::quantile(double q) const {
  if (empty()) return nan_value;
  if (!(q >= 0 && q <= 1)) fail_internal(fmt::format("quantile {} is not in [0, 1]", q), "samples");
  std::vector<double> sorted = values_;
  double position = q * double(count() - 1);
  auto index = size_t(position);
  std::nth_element(sorted.begin(), sorted.begin() + ptrdiff_t(index), sorted.end());
  double low = sorted[index], fraction = position - double(index);
  if (fraction == 0) return low;
  double high = *std::min_element(sorted.begin() + ptrdiff_t(index) + 1, sorted.end());
  return low + fraction * (high - low);
}

double student_t_975(int64_t freedom) {
  if (freedom < 1) return infinity;
  static const double table[] = {12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851};
  if (freedom <= 6) return table[freedom - 1];
  // Cornish-Fisher expansion in 1 / freedom (Abramowitz and Stegun 26.7.5). The error is below 1e-5
  // from 7 on.
  double z = 1.959963984540054, z2 = z * z, v = double(freedom);
  double g1 = z * (z2 + 1) / 4;
  double g2 = z * (5 * z2 * z2 + 16 * z2 + 3) / 96;
  double g3 = z * (3 * z2 * z2 * z2 + 19 * z2 * z2 + 17 * z2 - 15) / 384;
  double g4 = z * (79 * z2 * z2 * z2 * z2 + 776 * z2 * z2 * z2 + 1482 * z2 * z2 - 1920 * z2 - 945) / 92160;
  return z + g1 / v + g2 / (v * v) + g3 / (v * v * v) + g4 / (v * v * v * v);
}

Interval Samples::mean_interval() const {
  if (count() < 2) return {-infinity, infinity};
  double half = student_t_975(int64_t(count()) - 1) * std_dev() / std::sqrt(double(count()));
  return {mean() - half, mean() + half};
}

// The largest rank r (from 1) with P(Binomial(n, 1/2) < r) <= 2.5%; 0 if there is none. The
// interval from the r-th smallest to the r-th largest sample then covers the median with at least
// 95%.
static size_t median_rank(size_t n) {
  double log_half_n = -double(n) * std::log(2.0), below = 0;
  size_t rank = 0;
  for (size_t k = 0; k < n / 2; ++k) {
    double log_choose = std::lgamma(double(n) + 1) - std::lgamma(double(k) + 1) - std::lgamma(double(n - k) + 1);
    below += std::exp(log_choose + log_half_n);
    if (below > 0.025) break;
    rank = k + 1;
  }
  return rank;
}

Interval Samples::median_interval() const {
  size_t rank = median_rank(count());
  if (rank == 0) return {-infinity, infinity};
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return {sorted[rank - 1], sorted[count() - rank]};
}

double Samples::median_relative_half_width() const {
  Interval interval = median_interval();
  double width = interval.high - interval.low, center = median();
  if (width == 0) return 0;
  return center == 0 ? infinity : width / 2 / std::abs(center);
}

Samples Samples::scaled(double factor) const {
  Samples result;
  for (double v : values_) result.add(v * factor);
  return result;
}

void StoppingRule::validate() const {
  if (warmup < 0 || min_samples < 1 || max_samples < min_samples)
    fail_usage(fmt::format("warm-up {}, at least {} and at most {} samples contradict each other", warmup, min_samples,
                           max_samples),
               "measurement", "Use warm-up >= 0 and 1 <= minimum <= maximum.");
  if (!(max_seconds >= 0) || !(target_relative_ci >= 0))
    fail_usage("the time limit and the target interval must not be negative", "measurement");
}

bool StoppingRule::done(const Samples& samples, double spent) const {
  if (samples_at_limit > 0 && spent >= max_seconds) return samples.count() >= size_t(samples_at_limit);
  if (samples.count() < size_t(min_samples)) return false;
  if (samples.count() >= size_t(max_samples) || spent >= max_seconds) return true;
  return target_relative_ci > 0 && samples.median_relative_half_width() <= target_relative_ci;
}

Samples measure(const std::function<double()>& timed, const StoppingRule& rule) {
  rule.validate();
  const Timer timer;
  const bool limited = rule.samples_at_limit > 0;
  for (int i = 0; i < rule.warmup && !(limited && i > 0 && timer.seconds() > rule.max_seconds / 4); ++i) timed();
  Samples samples;
  double spent = 0;
  while (!rule.done(samples, limited ? std::max(timer.seconds(), spent) : spent)) {
    double seconds = timed();
    samples.add(seconds);
    spent += seconds;
  }
  return samples;
}

double time_once(const std::function<void()>& work) {
  Timer timer;
  work();
  return timer.seconds();
}

}  // namespace crest
