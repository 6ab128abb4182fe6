// Collectives next to computation: the part of them that a step waits for.
#pragma once
#include <vector>

#include "predict/predicted_step.h"

namespace crest {

// By row of the step's profile, in ms. The exposed time of a collective is the time that it runs
// alone, and the time by which it slows computation.
struct ExposedTimes {
  double ms = 0;  // the sum
  std::vector<double> rows;
};

// Runs the instructions of each Program on their streams, in the Program's order and with its
// waits. The rows have their times alone; `factor` scales those of collectives. A CPU computes and
// communicates with the same threads, so it hides nothing.
ExposedTimes exposed_collectives(const CompiledSession& session, const Profile& profile, double factor = 1);

// Replaces the times of communicating rows by their exposed times, and sets the sums of the step.
// Returns the exposed time with collectives faster and slower by the possible error.
struct ExposedRange {
  double low_ms = 0, high_ms = 0;
};
ExposedRange hide_collectives(PredictedStep& step, const CompiledSession& session);

}  // namespace crest
