#include "stats/noise.h"

#include <algorithm>

#include "stats/samples.h"

namespace crest {

namespace {

constexpr double assumed_floor = 0.01, floor_of_few = 0.1;
constexpr size_t few = 3;

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
  } else {
    n.ratio_interval = ratio_interval(a, b, paired && a.size() == b.size());
  }
  n.verdict = verdict_of(n.ratio, n.ratio_interval, n.floor);
  return n;
}

}  // namespace crest
