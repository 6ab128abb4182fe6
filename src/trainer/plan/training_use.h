// What a training run is planned for.
#pragma once
#include "plan/compile.h"

namespace crest {

// Everything that crest train compiles without --sample-every. Whether a recipe fits is always
// asked of these Programs: a step alone may need less.
inline constexpr SessionUse training_use = {.train = true, .update = true, .validation = true};

}  // namespace crest
