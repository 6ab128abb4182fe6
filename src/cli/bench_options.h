// The flags of crest bench: what is measured, how long, and grids of recipes.
#pragma once
#include <string>
#include <vector>

#include "cli/options.h"
#include "measure/bench_cell.h"

namespace crest {

struct BenchOptions {
  RecipeOptions recipe;
  DeviceOptions device;
  std::vector<std::string> batch, seq, precision, attention, fusion, recompute;  // grids; empty = the recipe's default
  std::string phase = "step", convention = "palm", ab, peer;
  int samples = 0, warmup = 3;
  double max_seconds = 20, peak = 0, timeout = 600;
  uint64_t seed = 1337;
  bool noise = false, no_mfu = false, json = false;
  bool compares() const { return noise || !ab.empty() || !peer.empty(); }
};

void add_bench_options(CLI::App& app, BenchOptions& options);
// Throws usage errors for numbers that make no sense.
void validate(const BenchOptions& options);
// Options of every cell: the product of the lists, the last one (seq) varies fastest. Empty lists are usage errors.
std::vector<RecipeOptions> cells_of(const BenchOptions& options);
std::vector<BenchPhase> phases_of(const std::string& phase);
// The second recipe of --ab: these flags over the first one's options.
void overlay_flags(const std::string& flags, RecipeOptions& recipe, DeviceOptions& device);

}  // namespace crest
