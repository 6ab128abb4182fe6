// The time of a step on a device that was not measured: the floors of its instructions by the rates
// of the data sheet, and what measured steps took above theirs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "predict/collective_times.h"
#include "predict/predicted_step.h"

namespace crest {

// By floors and calls, as measured steps were above theirs. The peak is the sheet's.
struct FloorTime : PredictedStep {
  double floor_ms = 0;                // the sum of the floors
  double tiled_ms = 0;                // the same with whole tiles and whole waves of the matrix products
  double factor = 1;                  // the range is the time over this to the time times this
  bool known = false;                 // whether steps of this generation and precision were measured
  std::vector<std::string> replaced;  // rates that the sheet lacks, and what stands for them
};

// Of steps that were measured (docs/concepts/predictions.md): an instruction takes so many times
// its floor, and a time for its call. A step may be off by a factor.
struct FloorScale {
  double attention, others;  // ms over floor_ms
  double ms_per_call;
  double known_factor;    // on the generation and in the precision of the measured steps
  double unknown_factor;  // elsewhere: an assumption
};
extern const FloorScale floor_scale;

// measured: collectives between ranks; null: by the sheet's link.
FloorTime floor_time(const CompiledSession& session, const DataSheet& sheet, const CollectiveTimes* measured = nullptr);

// docs/reference/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const FloorTime& time);
// A few lines. total: tokens of a whole training; 0: none given.
std::string text_of(const FloorTime& time, double total = 0);

}  // namespace crest
