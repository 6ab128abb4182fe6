// The tables of --precision fp8, by name, for checkpoints and for the host. With --fp8-recipe block
// there is no fp8_amax.
#pragma once
#include <string>
#include <vector>

#include "model/recipe.h"
#include "program/program.h"

namespace crest {

// f32[steps,slots]: the largest magnitudes of quantized tensors; 0: unknown. Row 0: the maximum
// over the last `steps` steps. The other rows: each of these steps except the oldest, newest first.
inline constexpr const char* fp8_amax = "fp8.amax";
// f32[slots,ranks]: the largest magnitude seen by each rank since the end of the last step.
inline constexpr const char* fp8_record = "fp8.record";
// i64[slots,2]: the counts of the present step, on their way to fp8_lost.
inline constexpr const char* fp8_counts = "fp8.counts";
// i64[slots,2]: values of the last step that saturated, and nonzero values that became zero.
inline constexpr const char* fp8_lost = "fp8.lost";

// The names of the slots of an update Program: "h.0.attn.qkv.weight" (the weight), and with ".x"
// and ".dy" the input of its linear layer and the gradient of its output. Empty without fp8.
std::vector<std::string> fp8_slots(const Program& program);

// Elements quantized by one run of a Program. The sum over a step's calls is the total for the
// counts in fp8_lost.
int64_t fp8_elements(const Program& program);

// Whether updates make 8-bit weights for train Programs (--fp8-weights update), so Program `start`
// runs before the first step.
bool has_start(const Recipe& recipe);
// Whether weights in 8 bits take memory for longer than their layer runs.
bool keeps_fp8_weights(const Recipe& recipe);

}  // namespace crest
