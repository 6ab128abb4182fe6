// Searches the settings of a training step on one or several ranks. Every combination is planned
// and predicted, the best few are measured, and the finalists are compared in interleaved rounds.
#pragma once
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/phase_runner.h"
#include "device/data_sheet.h"
#include "plan/recipe_settings.h"
#include "predict/calibration.h"
#include "stats/ab.h"

namespace crest {

// A setting and the values to try, as texts.
struct TuneList {
  std::string name;
  std::vector<std::string> values;
};

struct TuneOptions {
  RecipeOptions recipe;           // the start of the search; given settings are not varied
  std::vector<std::string> vary;  // additional settings: "NAME" or "NAME=VALUE,VALUE"
  int64_t global_batch = 0;       // sequences per step; 0: one micro batch of any size
  double stop_below = 0.01;       // a batch grows while its double gains more (0.01: 1% more tokens/s)
  double within = 0;              // 0.02: the least memory within 2% of the fastest
  int measure = 0;                // most steps to measure; 0: a tenth of the combinations, 6 to 24
  double max_seconds = 1;         // per measured step
  double search_seconds = 0;      // for the whole search; 0: no limit
  uint64_t seed = 1337;
  std::optional<DataSheet> sheet;                 // of the device (sheet_of)
  std::vector<std::string> process_flags;         // for processes to measure several ranks
  std::vector<std::string> device_flags;          // for the printed command
  std::function<void()> check_interrupt = [] {};  // called often; may throw to end the search
};

// A combination.
struct TuneCandidate {
  std::vector<std::pair<std::string, std::string>> changes;  // from the start: setting, value
  Recipe recipe;                                             // resolved
  int64_t planned_bytes = 0;                                 // everything in crest train
  int64_t step_bytes = 0;                                    // only the measured step
  std::optional<StepPrediction> predicted;
  double scale = 1;                   // part of predicted: measurements so far / predictions
  std::optional<double> measured_ms;  // median, measured by itself
  std::optional<double> final_ms;     // median of interleaved rounds with other finalists
  std::string failed;                 // why it could not be measured

  double ms() const { return final_ms ? *final_ms : measured_ms ? *measured_ms : predicted->ms; }
  // Tokens per second, measured or predicted.
  double rate() const { return 1e3 * double(recipe.tokens_per_step()) / ms(); }
};

// "batch 4, recompute none"; "the settings as given".
std::string change_text(const TuneCandidate& candidate);

struct TuneResult {
  static constexpr size_t none = std::numeric_limits<size_t>::max();
  std::vector<TuneCandidate> candidates;  // the fitting ones
  size_t too_large = 0, not_allowed = 0;  // combinations with too much memory; excluded by settings
  bool slow_batches = false;              // larger batches were skipped: a step would take too long to measure
  bool out_of_time = false;               // the time limit ended the search
  std::optional<TuneCandidate> smallest;  // the smallest too large candidate, if nothing fits
  std::optional<AbResult> finals;         // contender 0: the start, or the fastest; null: one candidate
  std::vector<size_t> finalists;          // indices of the contenders
  size_t start = none, best = 0;          // indices; none if the start does not fit
  size_t fastest = 0;                     // the best, or a larger batch with too little gain (stop_below)
  double noise = 0;                       // smaller relative differences mean nothing
  double tolerance = 0;                   // the larger of `within` and `noise`
  std::string not_here;                   // the device, if nothing was measured; else ""
  std::string prediction;                 // then: the basis of the best's prediction
  double seconds = 0;
  size_t measured() const;
};

// Smaller relative differences mean nothing between two predictions, or between separate
// measurements. Predictions from the same calibration have similar errors.
inline constexpr double least_noise = 0.01;

// Whether a search tries fp8 unasked: if the device multiplies 8-bit floats.
bool varies_precision(const Device& device);
// The varied settings and their values. Usage errors for unknown names and wrong values.
std::vector<TuneList> tune_lists(const TuneOptions& options, const Recipe& start, const Device& device);
// The largest number of ranks of a search.
int most_ranks(const std::vector<TuneList>& lists, const Recipe& start);

// device: with the threads of one rank. limit: bytes of all ranks of a CPU together, or of each
// GPU. calibration: null to learn from measurements only. Nothing is measured on a described
// device. say: progress. Throws `interrupted`, and does_not_fit with the closest combination if
// nothing fits.
TuneResult tune(const TuneOptions& options, const Device& device, int64_t limit, const Calibration* calibration,
                const std::function<void(const std::string&)>& say);

// The longest fitting context, over all combinations of varied settings.
struct LongestContext {
  TuneCandidate best;                  // with this context and an equally long sequence
  std::optional<TuneCandidate> start;  // with the settings as given; none: not even the shortest fits
  size_t combinations = 0;
  double seconds = 0;
};
inline constexpr int64_t context_step = 64;  // contexts are multiples of it
// Throws does_not_fit if not even the shortest context fits.
LongestContext longest_context(const TuneOptions& options, const Device& device, int64_t limit,
                               const Calibration* calibration, const std::function<void(const std::string&)>& say);
nlohmann::ordered_json to_json(const TuneOptions& options, const LongestContext& result);
std::string text_of(const TuneOptions& options, const LongestContext& result);

// The gain of each choice: the best candidate against the same with one change undone. If the best
// is the start, the start against each single change.
struct TuneGain {
  std::string setting, from, to;
  double ratio = 1;       // time per token, best / without the change
  bool measured = false;  // both in the same interleaved rounds; else both predicted
  int64_t bytes = 0;      // planned bytes of the best minus planned bytes without the change
  bool within_noise = false;
};
std::vector<TuneGain> gains(const TuneResult& result);

// Flags of crest train for a candidate: the given ones with its changes.
std::string train_flags(const TuneOptions& options, const TuneCandidate& candidate);

// docs/reference/contract.md, tune.
nlohmann::ordered_json to_json(const TuneOptions& options, const TuneResult& result);
// top: rows of the table.
std::string text_of(const TuneOptions& options, const TuneResult& result, size_t top, bool color, size_t width);

}  // namespace crest
