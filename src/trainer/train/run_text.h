// The text to train on: its tokenizer and the run's name.
#pragma once
#include <string>

#include "checkpoint/weights_io.h"
#include "train/request.h"

namespace crest {

// Throws a usage error if a request without text has a tokenizer or a chat template. Removes them
// if they come from an older run's file, next to the name of the data. A stream may have a
// tokenizer.
void check_text_options(TrainRequest& request);

// The initial model's tokenizer, for prepare_text, because its weights only make sense for its
// tokens. given: --tokenizer, or "". Throws if the model has no tokenizer, and a usage error if
// `given` is another one.
std::string tokenizer_of(const LoadedModel& model, const std::string& given);

// The run's default name: the name of its text or data.
std::string run_name(const TrainRequest& request);

}  // namespace crest
