// Setting --pad-vocab.
#pragma once
#include <cstdint>

#include "model/recipe.h"

namespace crest {

// Rows of the token embedding and columns of the logits, with the padding, on all ranks.
int64_t padded_vocabulary(const Recipe& recipe);

}  // namespace crest
