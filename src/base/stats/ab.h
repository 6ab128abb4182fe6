// Interleaved comparison of two or more ways to do the same work. All contenders run in every
// round, so drift of the machine (frequency, neighbors, temperature) affects them alike. A
// contender's noise is its difference from itself between neighboring rounds. The larger noise of
// two contenders is the floor for claims of a difference: B against A mirrors A against B.
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

// B against A. ratio = median(B) / median(A): with 0.8, B takes 20% less time.
struct Comparison {
  std::string a, b;
  double ratio = 1;
  Interval ratio_interval;  // 95%
  double noise_floor = 0;   // relative; the larger one of a and b; negative: of too few rounds
  Verdict verdict = Verdict::cannot_tell;
};

// A run, in order of measurement; warm-up rounds are excluded.
struct AbRun {
  size_t contender = 0;
  int round = 0;
  double seconds = 0;
  bool discarded = false;  // it only came before a sample
};

struct AbResult {
  std::vector<Samples> samples;         // one per contender, in seconds, in the contenders' order
  double noise_floor = 0;               // the largest one of the comparisons; negative: too few rounds
  std::vector<Comparison> comparisons;  // contender 1, 2, ... against contender 0
  std::vector<AbRun> order;
  int rounds = 0;
};

// With fewer, the floor is a single difference, and equal contenders get a verdict in 13% of the
// cases (3 rounds) or 30% (2) instead of 5%.
inline constexpr int fewest_rounds = 4;

// Of --samples; 0: as many as needed. Throws a usage error.
void check_rounds(int64_t rounds);

struct AbRule {
  int warmup_rounds = 2;
  int min_rounds = 16;
  int max_rounds = 150;
  double max_seconds = 60;  // of measured time and by the clock
  // Fewest rounds at the end of max_seconds. Below fewest_rounds: no intervals, no verdict.
  int rounds_at_limit = fewest_rounds;
  double target_relative_ci = 0.01;  // stop once every ratio is known this precisely
  bool apart = false;                // runs leave nothing behind (each is a process): discard none
  uint64_t seed = 1;                 // of the order and the bootstrap
};

// Needs at least two contenders. A round runs each once, in random order, but never one directly
// after itself: the run before a sample must not depend on whose sample it is. A contender's noise
// is the far end of the 95% interval of the ratio of its odd and even rounds. Verdicts:
// stats/ratio.h.
AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule = {});

// Only the statistics, for measurements made elsewhere: the ratio of medians b / a with its
// interval; a[i] and b[i] are of the same round. noise_floor decides the verdict.
Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed = 1);

// "B is 1.25x faster than A (95%: 1.21x to 1.29x; noise floor 0.8%)", or "no difference beyond
// noise: ...".
std::string describe(const Comparison& comparison);

}  // namespace crest
