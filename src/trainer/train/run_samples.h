// Text that a run writes while it trains: --sample-every.
#pragma once
#include <optional>
#include <string>

#include "train/engine.h"
#include "train/run_data.h"

namespace crest {

// Text of the current weights, from the start of a text. All ranks call it; only the process that
// leads gets the text. None after a signal, or without a tokenizer. seed: of the run.
std::optional<std::string> sample_of_run(Engine& engine, const RunData& data, const TrainOptions& options, int64_t step,
                                         uint64_t seed);

}  // namespace crest
