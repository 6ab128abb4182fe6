// --recompute budget=SIZE: the parts repeated in each layer, with at most this much memory for a
// step and the shortest predicted time.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/training_use.h"

namespace crest {

struct StepCost {
  double ms = 0;
  int64_t bytes = 0;
};

struct RecomputeChoice {
  std::string value;  // of --recompute: a level, or layers=...
  StepCost cost;
  int plans = 0;  // how many values were planned
};

// The fastest value of --recompute for `layers` layers with a plan of at most `budget` bytes, or,
// if there is none, the smallest plan (then cost.bytes > budget). plan: the cost of a value.
//
// A layer that repeats more costs time and saves memory, by nearly the same amounts in each layer:
// plans of the same level in all layers give both. All numbers of layers at up to three levels are
// ranked by these. Bisection over plans finds the first one that fits; then one or two layers
// change as long as this is faster and fits. The first layers repeat most: their values are needed
// last, when most of the others are gone.
RecomputeChoice choose_recompute(int64_t layers, int64_t budget,
                                 const std::function<StepCost(const std::string&)>& plan);

// Step times of one recipe, all from one source, so they can be compared.
struct StepTimer {
  std::function<double(const CompiledSession&)> ms;  // milliseconds of a step
  std::string source;                                // a note about the times
  bool absolute = false;                             // ms are for this device; otherwise only ratios count
};
// The timer for a recipe on a device. plain: its session without recompute.
using StepTimerOf = std::function<StepTimer(const CompiledSession& plain, const Device& device)>;
// Counts FLOPs and bytes at assumed rates.
StepTimer assumed_step_times(const CompiledSession& plain, const Device& device);

// Replaces `budget=SIZE` in a recipe and returns other recipes unchanged. SIZE is the memory of one
// rank for all plans of the run (use). timer_of: assumed_step_times if empty. note: gets a line
// with the choice. Throws does_not_fit, with the closest value.
Recipe recompute_within_budget(Recipe recipe, const Device& device, const StepTimerOf& timer_of = {},
                               const std::function<void(const std::string&)>& note = {},
                               const SessionUse& use = training_use);

}  // namespace crest
