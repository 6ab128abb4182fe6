// FLOP/s, MFU and HFU of a step timed by any program, with the conventions of publications.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"

namespace crest {

// A step as described in a publication.
struct TimedStep {
  std::optional<ModelConfig> model;
  double parameters = 0;  // total; if a model is given, the model's
  int64_t sequences = 0;  // on all ranks
  int64_t seq = 0;        // tokens of a sequence
  double seconds = 0;
  int ranks = 1;
  std::string recompute = "none";  // none, selective (attention), full (the layers)
  double peak = 0;                 // FLOP/s of a GPU; 0: unknown

  double tokens() const { return double(sequences) * double(seq); }
  double tokens_per_second() const { return tokens() / seconds; }
};

// Possible values of TimedStep::recompute.
extern const std::vector<std::string> timed_recompute;

// The FLOPs of a step by one convention. `model` counts nothing twice. `hardware` adds the FLOPs
// repeated by --recompute.
struct FlopsRate {
  std::string name, formula, source;
  double model = 0, hardware = 0;
};

// The applicable conventions, best known first. If the step has a model, the first row is Crest's
// reference for MFU and HFU.
std::vector<FlopsRate> flops_rates(const TimedStep& step);

// docs/reference/contract.md, flops.
nlohmann::ordered_json to_json(const TimedStep& step, const std::vector<FlopsRate>& rates);

}  // namespace crest
