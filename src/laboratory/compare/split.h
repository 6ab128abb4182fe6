// Splits the difference of two times among the factors of a time.
//
// A group of instructions is modeled as two pools of work: operations on matrix units
// (contractions, attention) and the rest. Each is limited by arithmetic or by memory (roofline;
// Williams, Waterman and Patterson 2009):
//   time = slowdown * sum over pools of max(flops * seconds_per_flop / clock, bytes / bandwidth)
// slowdown is measured time over this floor. A factor's share is its Shapley value: the change of
// time when the factor is switched from A to B, averaged over all orders of switching (Shapley
// 1953):
//   share(i) = sum over sets S without i of |S|! (n - |S| - 1)! / n! * (time(S + i) - time(S))
// The shares sum to the difference. Comparing B with A flips their signs. If a share exceeds both
// times, the model does not apply (10 times the work at 10 times the floor's rate), and the whole
// difference is unsplit.
#pragma once
#include <array>

#include "compare/compare.h"

namespace crest {

struct WorkPool {
  double flops = 0, bytes = 0;
  double arithmetic_seconds = 0;  // sum of flops / rate
};

struct Work {  // one side of a group
  double ms = 0;
  std::array<WorkPool, 2> pools;
  bool any() const { return ms > 0 || pools[0].flops + pools[1].flops + pools[0].bytes + pools[1].bytes > 0; }
  void add(const Work& other);
};

// How the two devices differ. clock_ratio = clock of B / clock of A on the same device, else 1.
struct Devices {
  double bandwidth_a = 0, bandwidth_b = 0;  // bytes/s, 0: unknown
  double clock_ratio = 1;
};

// Sums to b.ms - a.ms. Uses only flops .. clocks and unsplit. Everything is unsplit, too, if one
// side has time but no known work.
FactorMs split(const Work& a, const Work& b, const Devices& devices, Slowdowns* slowdowns = nullptr);

}  // namespace crest
