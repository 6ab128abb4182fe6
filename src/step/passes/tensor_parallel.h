// Sizes for ranks along the axis tensor.
#pragma once
#include <cstdint>

#include "model/recipe.h"

namespace crest {

// The batch must be a multiple of this, because the ranks divide a micro batch's tokens.
int64_t batch_multiple(const Recipe& recipe);

}  // namespace crest
