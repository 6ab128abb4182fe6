// What a training run is planned for.
#pragma once
#include "plan/compile.h"

namespace crest {

// Everything that crest train compiles. Whether a recipe fits is always asked of these Programs:
// a step alone needs less.
inline constexpr SessionUse training_use = {.train = true, .update = true, .validation = true, .sampling = true};

}  // namespace crest
