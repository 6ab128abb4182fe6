// Interleaved comparison of two or more ways to do the same work. All contenders run in every round, so that drift of
// the machine (frequency, neighbours, temperature) hits them alike; the first runs twice a round, and what it differs
// from itself is the noise floor below which no difference is claimed.
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

// A sample in the order in which all were taken; warm-up rounds are not among them.
struct AbSample {
  size_t contender = 0;
  bool again = false;  // the second run of the first contender
  int round = 0;
  double seconds = 0;
};

struct AbResult {
  std::vector<Samples> samples;         // one a contender, in seconds, in the contenders' order
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
  double max_seconds = 60;           // of measured time, never before min_rounds
  double target_relative_ci = 0.01;  // stop once every ratio is known this well
  uint64_t seed = 1;                 // of the bootstrap
};

// Needs two contenders or more. Round r starts at contender (r / 2) mod n and every odd round runs backwards, so each
// order of neighbours occurs equally often. The noise floor is the far end of the 95% interval of the A/A ratio.
// Verdicts: stats/ratio.h.
AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule = {});

// The statistics alone, for measurements taken elsewhere: ratio of medians b / a with its interval; a[i] and b[i] were
// taken in the same round. noise_floor decides the verdict.
Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed = 1);

// "B is 1.25x faster than A (95%: 1.21x to 1.29x; noise floor 0.8%)", or that it cannot be told.
std::string describe(const Comparison& comparison, double noise_floor);

}  // namespace crest
