// Settings left to `auto` that trade memory for time. Their faster values are the defaults. If
// these do not fit, Crest takes the next ones:
//
//   --fp8-weights of a step with several micro steps: 8-bit weights kept from the first micro step
//     on (keep) take two bytes a weight. Making them again in each half of each micro step (again)
//     saves this memory and reads more.
//   --loss-chunk on a GPU: fewer tokens with logits in memory at a time. Each chunk reads and writes
//     the head's gradient once more.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// The recipe with each combination of possible defaults, faster ones first and the smallest last;
// the recipe itself if there is nothing to choose.
std::vector<Recipe> memory_choices(const Recipe& recipe, const Device& device);

// The first of them with a plan of at most `limit` bytes for one rank; the smallest if none fits.
// note: receives a line if this is not the first; may be empty.
Recipe within_memory(const Recipe& recipe, const Device& device, int64_t limit, const SessionUse& use,
                     const std::function<void(const std::string&)>& note);

// The index of the first choice that fits, with as few plans as possible; -1 if none fits. The
// smallest choice is tried second: if it does not fit, no other does.
int first_choice_that_fits(int count, const std::function<bool(int)>& fits);

// The recipe's text of a pass's setting.
std::string pass_setting_of(const Recipe& recipe, const char* setting, const char* otherwise = "");

}  // namespace crest
