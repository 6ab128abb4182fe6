// The flags of crest bench: what is measured, how long, and lists of recipe flags that make a grid.
#pragma once
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "cli/new_record.h"
#include "cli/options.h"
#include "measure/bench_cell.h"

namespace crest {

// What one cell is made from.
struct CellOptions {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string label;  // its values of the lists with more than one: "precision bf16, batch 4"
};

struct BenchOptions {
  CellOptions base;  // without the flags that take lists
  // Every recipe flag that takes one value, and --threads: as given, in the order of their declaration. A list, as
  // addresses of the values stay.
  std::list<std::pair<std::string, std::vector<std::string>>> lists;
  RecordOptions store;
  std::string phase = "step", convention = "palm", ab, peer;
  int samples = 0, warmup = 3;
  double max_seconds = 20, peak = 0, timeout = 600;
  uint64_t seed = 1337;
  bool noise = false, no_mfu = false, flush_cache = false, resume = false, yes = false, json = false;
  bool compares() const { return noise || !ab.empty() || !peer.empty(); }
};

void add_bench_options(CLI::App& app, BenchOptions& options);
// Throws usage errors for numbers that make no sense.
void validate(const BenchOptions& options);
// Options of every cell: the product of the lists. Outermost are the levers in the order of their declaration,
// innermost
// --batch, then --seq, which varies fastest. Wrong values and empty lists are usage errors.
std::vector<CellOptions> cells_of(const BenchOptions& options);
std::vector<BenchPhase> phases_of(const std::string& phase);
// The second recipe of --ab: these flags over the first one's options.
void overlay_flags(const std::string& flags, CellOptions& cell);

}  // namespace crest
