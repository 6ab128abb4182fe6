// Options of crest bench: phases, duration, and lists of recipe flags that form a grid.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "bench/phase_runner.h"
#include "device/device_options.h"
#include "plan/recipe_settings.h"
#include "store/record_options.h"

namespace crest {

// The options of one measurement.
struct MeasurementOptions {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string label;  // its values of all lists with several: "precision bf16, batch 4"
};

struct BenchOptions {
  MeasurementOptions base;           // recipe settings as given; lists form a grid
  std::vector<std::string> threads;  // --threads as given; a list forms a grid
  RecordOptions store;
  std::string phase = "step", convention = "palm", ab, peer, product;
  int samples = 0, warmup = 3;
  double max_seconds = 20, peak = 0, timeout = 600;
  uint64_t seed = 1337;
  bool noise = false, no_mfu = false, flush_cache = false, resume = false, yes = false, json = false;
  bool compares() const { return noise || !ab.empty() || !peer.empty(); }
};

// Throws usage errors for invalid numbers.
void validate(const BenchOptions& options);
// The options of every measurement: the product of the lists. Settings in order of declaration vary
// slowest, then --batch, then --seq. Wrong values and empty lists are usage errors.
std::vector<MeasurementOptions> measurements_of(const BenchOptions& options);
std::vector<BenchPhase> phases_of(const std::string& phase);
}  // namespace crest
