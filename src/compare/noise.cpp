#include "compare/noise.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "measure/samples.h"

namespace crest {

namespace {

constexpr double assumed_floor = 0.01, floor_of_few = 0.1;
constexpr size_t few = 3;

double resampled_median(const std::vector<double>& from, uint64_t stream, uint64_t resample) {
  std::vector<double> picked(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    picked[i] = from[size_t((uint64_t(random_bits(stream, resample, i)) * from.size()) >> 32)];
  return Samples(std::move(picked)).median();
}

Interval bootstrap(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr uint64_t resamples = 1000;
  Samples ratios;
  for (uint64_t r = 0; r < resamples; ++r) ratios.add(resampled_median(b, 2, r) / resampled_median(a, 1, r));
  return {ratios.quantile(0.025), ratios.quantile(0.975)};
}

}  // namespace

NoiseCheck check_noise(const std::vector<double>& a, const std::vector<double>& b, double floor, bool paired) {
  NoiseCheck n;
  if (a.empty() || b.empty()) return n;
  n.floor = floor < 0 ? assumed_floor : floor;
  n.floor_source = floor < 0 ? "assumed" : "measured, A against A";
  n.ratio = Samples(b).median() / Samples(a).median();
  n.tested = a.size() >= few && b.size() >= few;
  if (!n.tested) {
    n.floor = std::max(n.floor, floor_of_few);
    n.floor_source = "too few samples";
    n.ratio_interval = {n.ratio, n.ratio};
  } else if (paired && a.size() == b.size()) {
    n.ratio_interval = compare_paired(Samples(a), Samples(b), n.floor).ratio_interval;
  } else {
    n.ratio_interval = bootstrap(a, b);
  }
  if (std::abs(n.ratio - 1) <= n.floor) return n;
  if (n.ratio_interval.high < 1) n.verdict = Verdict::b_faster;
  if (n.ratio_interval.low > 1) n.verdict = Verdict::a_faster;
  return n;
}

}  // namespace crest
