// The Programs planned for a training run.
#pragma once
#include "plan/compile.h"

namespace crest {

// Everything compiled by crest train without --sample-every. Whether a recipe fits is always
// decided on these Programs: a step alone may need less.
inline constexpr SessionUse training_use = {.train = true, .update = true, .validation = true};

}  // namespace crest
