// The planned steps of a search.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "plan/compile.h"

namespace crest {

struct PlannedStep {
  Recipe recipe;         // resolved, with the choices of crest train
  CompiledSession step;  // of the largest stage
  int64_t bytes = 0;     // everything in crest train; if that was not planned, the step
  bool fits = false;     // whether everything in crest train fits
};

// Steps that differ only in batch, recompute, attention and chunks of the loss have the same update
// Program. It is compiled once.
class StepPlans {
 public:
  // limit: bytes of all ranks of a CPU together, or of each GPU.
  StepPlans(const Device& device, int64_t limit) : device_(device), limit_(limit) {}

  // Plans a recipe as crest train does: stages by predicted times, and settings left to `auto` by
  // what fits (plan/memory_choices.h), or the smallest. Usage errors for settings in conflict.
  PlannedStep plan(const Recipe& given);
  // The step of a resolved recipe.
  CompiledSession step_of(const Recipe& resolved);

 private:
  PlannedStep plan_resolved(const Recipe& resolved);

  const Device& device_;
  const int64_t limit_;
  std::map<std::string, CompiledSession> updates_;  // by the settings of an update
};

}  // namespace crest
