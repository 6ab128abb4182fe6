// The tables of --precision fp8, by name: what checkpoints keep of them and what the host reads.
// With --fp8-recipe block there is no fp8_amax.
#pragma once
#include <string>
#include <vector>

#include "model/recipe.h"
#include "program/program.h"

namespace crest {

// f32[steps,slots]: in row 0 the largest magnitude of each quantized tensor in the last steps; 0:
// none is known. The other rows: those of each step but the first of them, the newest first.
inline constexpr const char* fp8_amax = "fp8.amax";
// f32[slots,ranks]: the largest magnitude that each rank has seen since the last step ended.
inline constexpr const char* fp8_record = "fp8.record";
// i64[slots,2]: what fp8_lost will be of the present step.
inline constexpr const char* fp8_counts = "fp8.counts";
// i64[slots,2]: values of the last step that saturated, and that were not zero and became zero.
inline constexpr const char* fp8_lost = "fp8.lost";

// What the slots of an update Program hold: "h.0.attn.qkv.weight" (the weight), and with ".x" and
// ".dy" the input of its linear layer and the gradient of its output. Empty without fp8.
std::vector<std::string> fp8_slots(const Program& program);

// Elements that one run of a Program quantizes. Summed over the calls of a step: what fp8_lost
// counts a part of.
int64_t fp8_elements(const Program& program);

// Whether train Programs read weights in 8 bits that updates make (--fp8-weights update), and
// before the first update Program `start`.
bool has_start(const Recipe& recipe);
// Whether weights in 8 bits take memory for longer than their layer runs.
bool keeps_fp8_weights(const Recipe& recipe);

}  // namespace crest
