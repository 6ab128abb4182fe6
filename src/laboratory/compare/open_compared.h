// Opens the sides of crest compare by name.
#pragma once
#include <string>

#include "store/record.h"
#include "store/record_options.h"

namespace crest {

// The run named `name`: FILE or FILE#RUN of an export, another run database, the output of crest
// profile --json, a PyTorch profiler trace or a training log; otherwise an id, uid, name or RUN
// folder in the run database. The error lists the available runs.
RunRecord open_compared(const std::string& name, const StoreFile& store);
// The larger noise floor measured here for the recipes of the two runs; below 0: none.
double known_noise_floor(const RunRecord& a, const RunRecord& b, const StoreFile& store);

}  // namespace crest
