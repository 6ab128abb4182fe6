#include "stats/ratio.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "core/random.h"

namespace crest {

namespace {

constexpr uint64_t resamples = 1000;

double median_in_place(std::vector<double>& v) {
  size_t half = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(half), v.end());
  double high = v[half];
  if (v.size() % 2) return high;
  return (high + *std::max_element(v.begin(), v.begin() + std::ptrdiff_t(half))) / 2;
}

double resampled_median(const std::vector<double>& from, uint64_t seed, uint64_t stream, std::vector<double>& picked) {
  size_t n = from.size();
  picked.resize(n);
  for (size_t i = 0; i < n; ++i) picked[i] = from[size_t((uint64_t(random_bits(seed, stream, i)) * n) >> 32)];
  return median_in_place(picked);
}

// The resampling of a side depends only on its samples, whichever side it is.
uint64_t seed_of(const std::vector<double>& samples, uint64_t seed) {
  for (double x : samples) seed = mix(seed ^ std::bit_cast<uint64_t>(x));
  return seed;
}

}  // namespace

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::a_faster: return "a_faster";
    case Verdict::b_faster: return "b_faster";
    case Verdict::cannot_tell: return "cannot_tell";
  }
  return "";
}

Verdict mirrored(Verdict verdict) {
  if (verdict == Verdict::cannot_tell) return verdict;
  return verdict == Verdict::a_faster ? Verdict::b_faster : Verdict::a_faster;
}

Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b, bool paired, uint64_t seed) {
  uint64_t seed_a = paired ? seed : seed_of(a, seed), seed_b = paired ? seed : seed_of(b, seed);
  std::vector<double> logs, negated, scratch;
  for (uint64_t r = 0; r < resamples; ++r) {
    double x = std::log(resampled_median(a, seed_a, r, scratch)), y = std::log(resampled_median(b, seed_b, r, scratch));
    logs.push_back(y - x), negated.push_back(x - y);
  }
  // Both ends use the same quantile, so swapping the sides swaps the ends, bit for bit.
  return {std::exp(Samples(std::move(logs)).quantile(0.025)), std::exp(-Samples(std::move(negated)).quantile(0.025))};
}

double relative_size(double ratio) { return std::expm1(std::abs(std::log(ratio))); }

Verdict verdict_of(double ratio, const Interval& interval, double floor) {
  if (!(std::abs(std::log(ratio)) > std::log1p(floor))) return Verdict::cannot_tell;
  if (interval.high < 1 && ratio < 1) return Verdict::b_faster;
  if (interval.low > 1 && ratio > 1) return Verdict::a_faster;
  return Verdict::cannot_tell;
}

double floor_of(const Interval& same) { return std::max(relative_size(same.low), relative_size(same.high)); }

double floor_of_rounds(const std::vector<std::pair<double, double>>& rounds) {
  double squares = 0;
  size_t n = 0;
  for (auto& [first, second] : rounds)
    if (first > 0 && second > 0) {
      double d = std::log(second / first);
      squares += d * d;
      ++n;
    }
  if (n < 2) return -1;
  // The deviation of one round of one measurement. The mean of two rounds has 1/sqrt(2) of it, and
  // a ratio of two such means has all of it.
  double deviation = std::sqrt(squares / (2 * double(n)));
  return std::expm1(student_t_975(int64_t(n)) * deviation);
}

}  // namespace crest
