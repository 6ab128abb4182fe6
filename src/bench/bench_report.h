// Rows of crest bench as a table and as JSON. The table is made from the JSON rows, so that rows of the run store can
// stand in it beside new ones.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/bench_cell.h"
#include "stats/ab.h"
#include "store/noise_floor.h"

namespace crest {

// What mfu is taken against.
struct BenchPeak {
  double flops_per_second = 0;  // 0 = unknown: no mfu
  std::string source;           // "measured bf16 matrix-product rate of the linear kernel"
};

struct BenchRow {
  Recipe recipe;
  std::string device;
  BenchPhase phase = BenchPhase::step;
  Samples seconds;                         // of one run; empty when the cell does not fit
  size_t throttled = 0;                    // how many of them
  std::set<std::string> throttle_reasons;  // device/throttle.h
  int64_t tokens = 0;                      // of one run
  double flops = 0;                        // of one run
  std::string convention;
  BenchPeak peak;
  // Bytes of all ranks. planned: arenas by plan; held: arenas really held; device_peak: peak resident set.
  int64_t planned = 0, held = 0, device_peak = 0;
  CategoryBytes by_category{};
  std::optional<int64_t> context_start, context;  // of the CUDA context (backend/cuda/nvml.h); absent: not known
  std::optional<double> watts;                    // mean power of the device during the samples (device/energy.h)
  bool out_of_memory = false;
  std::optional<double> noise_floor;      // measured with this row
  std::optional<NoiseFloor> known_floor;  // of an earlier measurement

  double tokens_per_second() const { return double(tokens) / seconds.median(); }
  double model_flops_per_second() const { return flops / seconds.median(); }
  // NaN without a peak.
  double mfu() const;
};

nlohmann::ordered_json to_json(const BenchRow& row);
// Comparison of contender 1 with contender 0 of an interleaved measurement.
nlohmann::ordered_json to_json(const AbResult& result);
// A peer's row: the command and its times.
nlohmann::ordered_json peer_to_json(const std::string& command, const Samples& seconds);

// The table, and below it what its figures mean.
std::string text_of(const std::vector<nlohmann::ordered_json>& rows, bool color);

// A sentence for each phase of a grid: which cell is the fastest (by tokens/s), and which cannot be told from it. Empty
// where fewer than two cells of a phase have times.
std::vector<std::string> conclusions(const std::vector<nlohmann::ordered_json>& rows);

}  // namespace crest
