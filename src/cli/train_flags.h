// Flags that say how crest train trains, apart from the recipe and from where the run is kept.
#pragma once
#include "train/run.h"

namespace CLI {
class App;
}

namespace crest {

void add_training_flags(CLI::App& app, TrainOptions& options);
// Those that were given: a usage error for what the library of flags lets through (it saturates numbers and wraps
// negative ones).
void check_training_flags(const CLI::App& app, const TrainOptions& options);
// A number that was given for a flag is within [low, high].
void check_range(const CLI::App& app, const char* flag, double value, double low, double high);

}  // namespace crest
