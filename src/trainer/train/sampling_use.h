// Adds to a training run's session for --sample-every.
#pragma once
#include "data/tokenizer.h"
#include "plan/compile.h"
#include "train/run.h"

namespace crest {

// Adds sampling, with a cache for one prompt and one sample. tokenizer: the data's, or null.
void add_sampling(SessionUse& use, const Tokenizer* tokenizer, const TrainOptions& options);

}  // namespace crest
