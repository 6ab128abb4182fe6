// Device-dependent defaults of a recipe. All commands use these for training, planning, measuring
// and predicting.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "device/matmul_rates.h"
#include "passes/stages.h"
#include "plan/recompute_budget.h"

namespace crest {

// Models with long contexts train on shorter sequences, unless --seq is given.
inline constexpr int64_t longest_default_seq = 4096;

// Measured or predicted times of layers, embedding and head.
using StageCostsOf = std::function<std::optional<StageCosts>(const Recipe&, const Device&)>;

struct DefaultSources {
  int64_t limit = 0;     // bytes of memory for one rank
  StepTimerOf timer_of;  // for --recompute budget=SIZE; empty: assumed_step_times
  // For pipeline stages of a resolved recipe. Empty or no result: cut by FLOPs.
  StageCostsOf stage_costs_of;
  SessionUse use = training_use;
  std::function<std::optional<MatmulRates>(const Device&)> rates_of = matmul_rates;
  std::function<void(const std::string&)> note;  // gets a line for each choice; may be empty
};

// Chooses precision, sequence length, 8-bit weights and recompute, but keeps the user's values.
// device: one rank's part.
//
// On a CPU with bf16 hardware, `auto` picks the precision with faster matmuls.
//
// The length starts at the model's context, at most longest_default_seq. It is halved until a batch
// of 1 fits. If no length fits, the longest stays and compiling reports the problem.
//
// fp8 with several micro steps keeps 8-bit weights if they fit, and a GPU runs the loss for as many
// tokens at a time as fit (plan/memory_choices.h).
Recipe with_defaults(Recipe recipe, const Device& device, const DefaultSources& sources);
// Chooses the precision only, for commands without training.
Recipe with_default_precision(Recipe recipe, const Device& device, const DefaultSources& sources = {});

}  // namespace crest
