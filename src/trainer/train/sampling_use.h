// The additions of --sample-every to the session of a training run.
#pragma once
#include "data/tokenizer.h"
#include "plan/compile.h"
#include "train/run.h"

namespace crest {

// Adds sampling, with a cache for one prompt and one sample. tokenizer: the data's; null: none.
void add_sampling(SessionUse& use, const Tokenizer* tokenizer, const TrainOptions& options);

}  // namespace crest
