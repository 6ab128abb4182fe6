// The Programs planned for a training run.
#pragma once
#include "plan/compile.h"

namespace crest {

// Everything compiled by crest train without --sample-every. These Programs decide whether a recipe
// fits, because a step alone may need less.
inline constexpr SessionUse training_use = {.train = true, .update = true, .validation = true};

}  // namespace crest
