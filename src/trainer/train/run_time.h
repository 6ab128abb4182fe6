// The parts of a training run's time, and its share of the device's peak over all of the time.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/step_flops.h"
#include "train/step_row.h"

namespace crest {

struct TrainOptions;

// The steps of this process. Seconds.
class RunTime {
 public:
  // The FLOPs of a step, and the peak: of options.peak, or of the device's data sheet.
  void begin(const CompiledSession& session, const TrainOptions& options);
  void add(const StepRow& row);

  double step_seconds() const { return steps_; }
  double data_seconds() const { return data_; }
  // Negative: unknown.
  double communication_seconds() const { return communication_; }
  // Shares of the peak of all ranks over `seconds`; NaN: the peak is unknown, or no step ran.
  double mfu(double seconds) const { return share(flops_.model, seconds); }
  double hfu(double seconds) const { return share(flops_.hardware, seconds); }
  double peak() const { return peak_; }  // FLOP/s of all ranks; 0: unknown

  // ", 0.31 s of it waiting for data, 0.50 s for communication"; "": neither took time.
  std::string parts_text() const;
  // "MFU 38.4%, HFU 40.1% of 989.4 TFLOP/s (NVIDIA H100 SXM5 80GB), ..."; "": no peak is known.
  std::string peak_text(double seconds) const;

 private:
  double share(double flops, double seconds) const;

  int64_t count_ = 0;
  double steps_ = 0, data_ = 0, communication_ = 0;
  StepFlops flops_;
  double peak_ = 0;
  std::string source_;
};

// Seconds of a run besides its steps.
struct BetweenSteps {
  double validation = 0, saving = 0, sampling = 0;
};
// Keys mfu, hfu, peak_flops_per_second and time (docs/reference/contract.md, train). seconds: of
// the whole run; the parts of `time` sum to it.
nlohmann::ordered_json to_json(const RunTime& time, double seconds, const BetweenSteps& between);

}  // namespace crest
