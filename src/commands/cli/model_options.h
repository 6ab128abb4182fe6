// Options and messages of commands that open a saved model.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/weights_io.h"
#include "inference/decoding_session.h"
#include "run/sampler.h"

namespace CLI {
class App;
}

namespace crest {

// --temperature, --top-k, --top-p, --seed.
void add_sampler_options(CLI::App& app, SamplerOptions& options);
// --stop TEXT, any number of them.
void add_stop_option(CLI::App& app, std::vector<std::string>& stops);
// --precision, --weights.
void add_precision_options(CLI::App& app, DecodingOptions& options);

// Prints warnings. base: of --base.
LoadedModel open_model_of_command(const std::string& run, const std::string& base);
// Prints the name of the model, its step and size, and how it is computed.
void print_model(const LoadedModel& model, const Recipe& recipe, const Device& device);

}  // namespace crest
