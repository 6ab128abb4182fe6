// Whether two times differ beyond noise.
#pragma once
#include <string>
#include <vector>

#include "stats/ratio.h"

namespace crest {

struct NoiseCheck {
  bool tested = false;  // false: one side has too few samples
  double ratio = 0;     // median(b) / median(a)
  Interval ratio_interval;
  double floor = 0;  // relative
  std::string floor_source;
  Verdict verdict = Verdict::cannot_tell;
};

// The ratio of medians b / a with its 95% interval, and the verdict (stats/ratio.h). `paired`:
// samples i of both sides are of one round. Without a measured floor (negative) 1% is assumed. With
// fewer than three samples on a side there is no interval, and only differences above 10% are
// reported.
NoiseCheck check_noise(const std::vector<double>& a, const std::vector<double>& b, double floor, bool paired);

}  // namespace crest
