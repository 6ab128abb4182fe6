// What a recipe takes from the device where nothing was given. Every command that trains, or plans,
// measures or predicts training, asks here, so that all choose the same.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "device/matmul_rates.h"
#include "plan/recompute_budget.h"

namespace crest {

// Models of long contexts train on shorter sequences, unless --seq says otherwise.
inline constexpr int64_t longest_default_seq = 4096;

struct DefaultSources {
  int64_t limit = 0;     // bytes of memory that one rank may use
  StepTimerOf timer_of;  // for --recompute budget=SIZE; empty: assumed_step_times
  SessionUse use = training_use;
  std::function<std::optional<MatmulRates>(const Device&)> rates_of = matmul_rates;
  std::function<void(const std::string&)> note;  // gets a line for each choice; may be empty
};

// Chooses the precision, the length of sequences and what layers repeat. Returns the recipe with
// these values; a value that was given stays. device: one rank's share.
//
// A CPU with arithmetic for bf16 computes in the precision whose matmuls are faster.
//
// The length is that of the context, at most longest_default_seq, halved until a batch of 1 fits.
// Where none does, the recipe keeps the longest: whoever compiles it reports what does not fit.
Recipe with_defaults(Recipe recipe, const Device& device, const DefaultSources& sources);

}  // namespace crest
