// The tables of --precision fp8 by name, for checkpoints and the host. --fp8-recipe block has no
// fp8_amax.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/recipe.h"
#include "program/program.h"

namespace crest {

// f32[steps,slots]: largest magnitudes of quantized tensors; 0: unknown. Row 0: the maximum over
// the last `steps` steps. Further rows: one for each of these steps except the oldest, newest
// first.
inline constexpr const char* fp8_amax = "fp8.amax";
// f32[slots,ranks]: each rank's largest magnitude in the current step.
inline constexpr const char* fp8_record = "fp8.record";
// i64[slots,2]: counts of the current step, moved to fp8_lost at its end.
inline constexpr const char* fp8_counts = "fp8.counts";
// i64[slots,2]: saturated values in the last step, and nonzero values that became zero.
inline constexpr const char* fp8_lost = "fp8.lost";

// Slot names of an update Program: "h.0.attn.qkv.weight" for the weight, with ".x" for its linear
// layer's input and ".dy" for its output's gradient. Empty without fp8.
std::vector<std::string> fp8_slots(const Program& program);

// Elements quantized by one run of a Program. Their sum over a step is the total for the counts in
// fp8_lost.
int64_t fp8_elements(const Program& program);

// The meaning of `--fp8-weights auto` in a step with this many micro steps, if memory allows it
// (plan/memory_choices.h).
std::string auto_fp8_weights(int64_t micro_steps);
// Whether updates write the 8-bit weights for train Programs (--fp8-weights update). If so, Program
// `start` runs before the first step.
bool has_start(const Recipe& recipe);
// Whether 8-bit weights stay in memory after their layer has run.
bool keeps_fp8_weights(const Recipe& recipe);

}  // namespace crest
