// Interleaved comparison of two or more ways to do the same work. All contenders run in every
// round, so drift of the machine (frequency, neighbors, temperature) affects them alike. The first
// runs twice per round; its difference from itself is the noise floor, below which no difference is
// claimed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "stats/ratio.h"
#include "stats/samples.h"

namespace crest {

// run: does the work once and returns its seconds.
struct Contender {
  std::string name;
  std::function<double()> run;
};

// B against A. ratio = median(B) / median(A): 0.8 means that B takes 20% less time.
struct Comparison {
  std::string a, b;
  double ratio = 1;
  Interval ratio_interval;  // 95%
  Verdict verdict = Verdict::cannot_tell;
};

// A sample, in order of measurement; warm-up rounds are excluded.
struct AbSample {
  size_t contender = 0;
  bool again = false;  // the second run of the first contender
  int round = 0;
  double seconds = 0;
};

struct AbResult {
  std::vector<Samples> samples;         // one per contender, in seconds, in the contenders' order
  Samples again;                        // the second run of the first contender
  double noise_floor = 0;               // relative; see compare_interleaved
  std::vector<Comparison> comparisons;  // contender 1, 2, ... against contender 0
  std::vector<AbSample> order;
  int rounds = 0;
};

struct AbRule {
  int warmup_rounds = 2;
  int min_rounds = 10;
  int max_rounds = 100;
  double max_seconds = 60;           // of measured time, but at least min_rounds
  double target_relative_ci = 0.01;  // stop once every ratio is known this precisely
  uint64_t seed = 1;                 // of the bootstrap
};

// Needs at least two contenders. Round r starts at contender (r / 2) mod n and every odd round runs
// backwards, so each order of neighbors occurs equally often. The noise floor is the far end of
// the 95% interval of the A/A ratio. Verdicts: stats/ratio.h.
AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule = {});

// Only the statistics, for measurements made elsewhere: the ratio of medians b / a with its
// interval; a[i] and b[i] are of the same round. noise_floor decides the verdict.
Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed = 1);

// "B is 1.25x faster than A (95%: 1.21x to 1.29x; noise floor 0.8%)", or "no difference beyond
// noise: ...".
std::string describe(const Comparison& comparison, double noise_floor);

}  // namespace crest
