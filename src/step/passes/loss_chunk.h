// What pass loss_chunk leaves in a Program, and answers for its setting.
#pragma once
#include <cstdint>

#include "model/recipe.h"

namespace crest {

// A property of Programs with a chunked loss: the tokens of a chunk.
inline constexpr const char* loss_chunk_property = "loss_chunk";

// Of more tokens than in this many chunks, a chunk has more than the setting says.
inline constexpr int64_t most_loss_chunks = 1024;

// The most tokens of a chunk by the recipe's --loss-chunk; 0: not chunked, or not resolved yet.
int64_t loss_chunk_of(const Recipe& recipe);

}  // namespace crest
