// The step time of an unmeasured device: the floors of its instructions by the rates of the data
// sheet, scaled as on measured devices.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "predict/collective_times.h"
#include "predict/predicted_step.h"

namespace crest {

// From floors and calls. The peak is the sheet's.
struct FloorTime : PredictedStep {
  double floor_ms = 0;                // the sum of the floors
  double tiled_ms = 0;                // the same with whole tiles and waves of the matrix products
  double factor = 1;                  // the range is time / factor to time * factor
  bool known = false;                 // whether steps of this generation and precision were measured
  std::vector<std::string> replaced;  // rates missing in the sheet, and their replacements
};

// Fitted to measured steps (docs/concepts/predictions.md). An instruction takes a multiple of its
// floor plus a time per call. A step may be off by a factor.
struct FloorScale {
  double attention, others;  // ms over floor_ms
  double ms_per_call;
  double known_factor;    // for the generation and precision of the measured steps
  double unknown_factor;  // for others: an assumption
};
extern const FloorScale floor_scale;

// measured: collectives between ranks; null: use the sheet's link.
FloorTime floor_time(const CompiledSession& session, const DataSheet& sheet, const CollectiveTimes* measured = nullptr);

// docs/reference/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const FloorTime& time);
// A few lines. total: tokens of a whole training; 0: not given.
std::string text_of(const FloorTime& time, double total = 0);

}  // namespace crest
