// Rows of crest bench as a table and as JSON. The table takes JSON rows, so it can mix recorded
// rows with new ones.
#pragma once
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/phase_runner.h"
#include "stats/ab.h"
#include "store/noise_floor.h"

namespace crest {

// The peak rate behind mfu.
struct BenchPeak {
  double flops_per_second = 0;  // 0 = unknown: no mfu
  std::string source;           // "measured bf16 matmul rate of the linear kernel"
};

struct BenchRow {
  Recipe recipe;
  std::string device;
  BenchPhase phase = BenchPhase::step;
  Samples seconds;                         // per run; empty if the measurement does not fit
  size_t throttled = 0;                    // number of throttled samples
  std::set<std::string> throttle_reasons;  // device/throttle.h
  int64_t tokens = 0;                      // per run
  double flops = 0;                        // per run
  double hardware_flops = 0;               // and the recomputed ones, for hfu
  std::string convention;
  BenchPeak peak;
  BenchPeak sheet;  // the peak of the device's data sheet
  // Bytes of one rank. planned: arenas by plan; held: allocated arenas; device_peak: peak resident
  // set, or device memory in use.
  int64_t planned = 0, held = 0, device_peak = 0;
  CategoryBytes by_category{};
  std::optional<int64_t> context_start, context;  // size of the CUDA context (backend/cuda/nvml.h); absent: unknown
  std::optional<double> watts;                    // mean device power during the samples (device/energy.h)
  std::optional<double> other_load;               // CPUs in use by other processes meanwhile; absent: a GPU, or unknown
  bool out_of_memory = false;
  std::optional<double> noise_floor;      // measured with this row
  std::optional<NoiseFloor> known_floor;  // from an earlier measurement
  std::optional<PipelineTimes> pipeline;  // of pipeline stages

  double tokens_per_second() const { return double(tokens) / seconds.median(); }
  double model_flops_per_second() const { return flops / seconds.median(); }
  // NaN without a peak.
  double mfu() const { return share(flops, peak); }
  double hfu() const { return share(hardware_flops, peak); }
  double share(double of_flops, const BenchPeak& of) const;
};

nlohmann::ordered_json to_json(const BenchRow& row);
// Compares contender 1 with contender 0 of an interleaved measurement.
nlohmann::ordered_json to_json(const AbResult& result);
// The row of a peer: its command and its times.
nlohmann::ordered_json peer_to_json(const std::string& command, const Samples& seconds);

// The table, with notes on its figures below.
std::string text_of(const std::vector<nlohmann::ordered_json>& rows, bool color,
                    size_t width = std::numeric_limits<size_t>::max());

// For each phase of a grid one sentence: the fastest measurement (by tokens/s), and the others
// within noise of it. Empty with fewer than two timed measurements of a phase.
std::vector<std::string> conclusions(const std::vector<nlohmann::ordered_json>& rows);

}  // namespace crest
