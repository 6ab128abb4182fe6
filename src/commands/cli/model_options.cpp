#include "cli/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/text_io.h"
#include "core/text.h"
#include "inference/precision.h"
#include "model/parameters.h"

namespace crest {

void add_sampler_options(CLI::App& app, SamplerOptions& o) {
  auto option = [&](const char* flag, auto& value, const char* help) {
    app.add_option(flag, value, help)->capture_default_str();
  };
  option("--temperature", o.temperature, "0: always the most probable token; 1: the model's own probabilities");
  option("--top-k", o.top_k, "sample from the k most probable tokens (0: all)");
  option("--top-p", o.top_p, "sample from the fewest tokens whose probabilities add up to this (1: all)");
  option("--seed", o.seed, "the same seed gives the same text");
}

void add_stop_option(CLI::App& app, std::vector<std::string>& stops) {
  app.add_option("--stop", stops, "stop before this text; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);  // "[a,b]" is a text, not a list
}

void add_precision_options(CLI::App& app, DecodingOptions& o) {
  app.add_option("--precision", o.precision,
                 "auto (bf16 if the device supports it), fp32, tf32, bf16, fp16; fp8 is computed as bf16")
      ->capture_default_str();
  app.add_option("--weights", o.weights,
                 "matrices of linear layers: in --precision (float), or 8-bit integers with a scale for each output "
                 "(int8)")
      ->capture_default_str();
}

LoadedModel open_model_of_command(const std::string& run, const std::string& base) {
  return open_model(
      run, [](const std::string& m) { message("crest: warning: {}", m); }, base);
}

void print_model(const LoadedModel& model, const Recipe& recipe, const Device& device) {
  message("model    {}{}, {} parameters, {} on {}", printable(model.config.name),
          model.step >= 0 ? fmt::format(" at step {}", model.step) : "",
          format_count(double(parameter_count(model.config))), inference_text(recipe), device.name);
}

}  // namespace crest
