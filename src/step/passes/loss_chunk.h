// Results of pass loss_chunk in a Program, and the value of its setting.
#pragma once
#include <cstdint>

#include "model/recipe.h"

namespace crest {

// Property of Programs with a chunked loss: tokens in a chunk.
inline constexpr const char* loss_chunk_property = "loss_chunk";

// Limits the chunks of a loss. With more tokens, chunks are larger than the setting.
inline constexpr int64_t most_loss_chunks = 1024;

// Largest number of tokens in a chunk, by --loss-chunk; 0: not chunked, or `auto` is not resolved
// yet.
int64_t loss_chunk_of(const Recipe& recipe);

}  // namespace crest
