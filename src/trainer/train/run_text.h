// Text to train on: its tokenizer, and its name for the run.
#pragma once
#include <string>

#include "checkpoint/weights_io.h"
#include "train/request.h"

namespace crest {

// Throws a usage error if a request without text has a tokenizer or a chat template. It removes
// them if they come from the file of an older run, which names its data as well.
void check_text_options(TrainRequest& request);

// The tokenizer of the initial model, for prepare_text: weights mean nothing on other tokens.
// given: --tokenizer, or "". Throws if the model has no tokenizer, and a usage error if `given`
// differs from it.
std::string tokenizer_of(const LoadedModel& model, const std::string& given);

// The default name of a run: the name of its text or data.
std::string run_name(const TrainRequest& request);

}  // namespace crest
