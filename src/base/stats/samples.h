// Timing samples: statistics, confidence intervals, and the stopping rule.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace crest {

struct Interval {
  double low = 0, high = 0;
};

// Measurements of one quantity, in order (the caller's unit, usually seconds).
// Statistics of an empty set are NaN; non-finite values are refused by add().
class Samples {
 public:
  Samples() = default;
  explicit Samples(std::vector<double> values);
  void add(double value);

  size_t count() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const std::vector<double>& values() const { return values_; }

  double mean() const;
  // Unbiased (n - 1); 0 for a single sample.
  double std_dev() const;
  double median() const { return quantile(0.5); }
  double min() const;
  double max() const;
  // Linear interpolation between order statistics (Hyndman and Fan 1996, type 7); q in [0, 1].
  double quantile(double q) const;

  // 95% confidence interval of the mean: mean +- t(0.975, n - 1) std / sqrt(n). Infinite below two
  // samples.
  Interval mean_interval() const;
  // 95% confidence interval of the median from order statistics (binomial ranks, no distribution
  // assumed). Infinite below six samples, where min..max covers the median with less than 95%.
  Interval median_interval() const;
  // Half the width of the interval over the median: 0.01 means "known to 1%".
  double median_relative_half_width() const;

  // Every value times `factor` (seconds to milliseconds).
  Samples scaled(double factor) const;

 private:
  std::vector<double> values_;
};

// Two-sided 95% point of Student's t with `freedom` degrees of freedom (>= 1).
double student_t_975(int64_t freedom);

// When to stop measuring: at max_samples or max_seconds (but not before min_samples), or once the
// median is known to target_relative_ci.
struct StoppingRule {
  int warmup = 3;        // runs discarded first
  int min_samples = 10;  // at least 6, or the median has no 95% interval
  int max_samples = 200;
  double max_seconds = 20;           // total of the measured runs, as `timed` reports them
  double target_relative_ci = 0.01;  // 0 = always use the whole budget
  // Fewest samples at the end of max_seconds, then by the clock and with warm-up. 0: min_samples.
  int samples_at_limit = 0;

  // Throws a usage error when the numbers contradict each other.
  void validate() const;
  // spent: seconds measured so far, without warm-up; with samples_at_limit since the start.
  bool done(const Samples& samples, double spent) const;
};

// Runs `timed` (it returns the seconds of one run)
// warmup times, then until the rule is satisfied.
Samples measure(const std::function<double()>& timed, const StoppingRule& rule = {});

// Seconds of one call of `work` on the steady clock.
double time_once(const std::function<void()>& work);

}  // namespace crest
