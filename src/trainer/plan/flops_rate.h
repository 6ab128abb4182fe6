// FLOP/s, MFU and HFU of a step timed by any program, by the conventions of published figures.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"

namespace crest {

// A step as its publication describes it.
struct TimedStep {
  std::optional<ModelConfig> model;
  double parameters = 0;  // all of them; with a model, the model's
  int64_t sequences = 0;  // of all ranks
  int64_t seq = 0;        // tokens of a sequence
  double seconds = 0;
  int ranks = 1;
  std::string recompute = "none";  // none, selective (attention), full (the layers)
  double peak = 0;                 // FLOP/s of a GPU; 0: unknown

  double tokens() const { return double(sequences) * double(seq); }
  double tokens_per_second() const { return tokens() / seconds; }
};

// The values of TimedStep::recompute.
extern const std::vector<std::string> timed_recompute;

// The FLOPs of a step by one convention: `model` counts nothing twice, `hardware` adds the FLOPs
// that --recompute repeats.
struct FlopsRate {
  std::string name, formula, source;
  double model = 0, hardware = 0;
};

// The conventions that apply, the best known one first. The first row is the reference for MFU and
// HFU in Crest, if the step has a model.
std::vector<FlopsRate> flops_rates(const TimedStep& step);

// docs/reference/contract.md, flops.
nlohmann::ordered_json to_json(const TimedStep& step, const std::vector<FlopsRate>& rates);

}  // namespace crest
