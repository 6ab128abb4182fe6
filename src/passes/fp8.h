// The tables of --precision fp8, by name: what checkpoints keep of them and what the host reads.
// With --fp8-recipe block there is no fp8_amax.
#pragma once
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

// f32[steps,slots]: in row 0 the largest magnitude of each quantized tensor in the last steps; 0:
// none is known. The other rows: those of each step but the first of them, the newest first.
inline constexpr const char* fp8_amax = "fp8.amax";
// i64[slots,2]: values of the last step that saturated, and that were not zero and became zero.
inline constexpr const char* fp8_lost = "fp8.lost";

// What the slots of an update Program hold: "h.0.attn.qkv.weight" (the weight), and with ".x" and
// ".dy" the input of its linear layer and the gradient of its output. Empty without fp8.
std::vector<std::string> fp8_slots(const Program& program);

// Elements that one run of a train Program quantizes. Summed over the micro steps of a step: what
// fp8_lost counts a part of.
int64_t fp8_elements(const Program& train);

}  // namespace crest
