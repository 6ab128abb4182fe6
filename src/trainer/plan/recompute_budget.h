// --recompute budget=SIZE: chooses the repeated parts of each layer, for the shortest predicted
// time with at most this much memory. With --offload activations it also chooses the layers with
// activations in host memory.
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
  std::string value;  // value of --recompute: a level, or layers=...
  int64_t away = 0;   // the first layers, with their activations in host memory
  StepCost cost;
  int plans = 0;  // number of planned values
};

// The fastest value of --recompute with a plan of at most `budget` bytes. If there is none, the
// smallest plan (cost.bytes > budget). plan: the cost of a value.
//
// Repeating more in a layer saves memory and costs time, by nearly the same amounts in every layer.
// Plans with one level in all layers give both. From these, all combinations of up to three levels
// are ranked. Bisection over plans finds the first fitting one. Then one or two layers change while
// this is faster and fits. The first layers repeat most: their values are needed last, when most
// others are gone.
//
// Layers may also be away: their activations are in host memory between the halves. They repeat
// `away_level`; "": no layer may be away. The link hides the transfers of some layers and not of
// all, so plans with an eighth to all layers away give their cost. Layers away come before
// all others: their activations have the longest time to return.
RecomputeChoice choose_recompute(int64_t layers, int64_t budget,
                                 const std::function<StepCost(const std::string& value, int64_t away)>& plan,
                                 const std::string& away_level = "");

// Step times of one recipe. They have one source, so they are comparable.
struct StepTimer {
  // Milliseconds of a step. The other stages of a pipeline are `compiled`, or compiled for it.
  std::function<double(const CompiledSession&, const std::vector<const CompiledSession*>& compiled)> ms;
  std::string source;     // a note about the source
  bool absolute = false;  // the times are for this device; false: only ratios mean anything
};
// Creates a timer for a recipe on a device. plain: the session without recompute.
using StepTimerOf = std::function<StepTimer(const CompiledSession& plain, const Device& device)>;
// Counts FLOPs and bytes at assumed rates.
StepTimer assumed_step_times(const CompiledSession& plain, const Device& device);

// Replaces `budget=SIZE` in a recipe, and together with it --offload activations and the settings
// of memory_choices() (plan/memory_choices.h); returns others unchanged. SIZE is one rank's memory
// for all plans of the run (use). timer_of: assumed_step_times if empty. note: receives a line
// about the choice. Throws does_not_fit with the closest value.
Recipe recompute_within_budget(Recipe recipe, const Device& device, const StepTimerOf& timer_of = {},
                               const std::function<void(const std::string&)>& note = {},
                               const SessionUse& use = training_use);

}  // namespace crest
