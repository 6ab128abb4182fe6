// Output of a training run: its description, its steps, and its end. It goes to standard error;
// with --json, one JSON document goes to standard output.
#pragma once
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "train/engine.h"
#include "train/pipeline_times.h"
#include "train/progress.h"
#include "train/run.h"
#include "train/run_files.h"
#include "train/run_state.h"
#include "train/schedule.h"

namespace crest {

// Why a run ended.
enum class RunEnd { steps, time, stop_after, signal, data };
const char* name(RunEnd end);  // "steps", "time", "stop_after", "signal", "data"

class RunReport {
 public:
  // The options must outlive it. prints: whether this process prints.
  RunReport(const TrainOptions& options, bool prints);

  // Lines suppressed by --quiet; warnings are always shown. Of several processes, only the first
  // one prints.
  void message(const std::string& text);
  void warning(const std::string& text);

  struct Plan {
    const Schedule& schedule;
    bool fitting;                   // the number of steps, and its consequences, are not known yet
    int64_t val_every, save_every;  // 0: never; only at the end
    int64_t val_batches, val_rows;  // batches per validation; rows per batch
  };
  // Not for a run restarted by the launcher: it was described.
  void describe(Engine& engine, const Dataset& data);
  void describe(const RunState& state, const Plan& plan);
  // total_steps -1: not known yet.
  void step(const StepRow& row, int64_t total_steps, Engine& engine);
  void sample(int64_t step, const std::string& text);
  // Ends the live line.
  void end_steps() { progress_.finish(); }

  struct Summary {
    int64_t step, total_steps;  // total 0: not known yet
    RunEnd end;
    std::string signal;  // "SIGTERM"
    bool saved;
    double loss, val_loss;  // NaN: none
    int64_t loss_step, val_step;
    double step_ms_median;  // of all steps of the run after warm-up, including the ones before the resume
    // parts of the first value; the rest is steps; saving: without the last checkpoint
    double seconds, saving_seconds, last_save_seconds, validation_seconds, sampling_seconds;
    std::string curve;                      // text for a terminal
    std::optional<PipelineTimes> pipeline;  // of some steps with pipeline stages
  };
  void finish(const Summary& summary);
  // At the end of a run saved at `step`: warns of NaN or infinite weights there.
  void not_finite(const std::string& checkpoints, int64_t step);
  // The failed read, and that the run is saved at `step`.
  std::exception_ptr unreadable(const std::exception_ptr& error, int64_t step) const;
  // The document of --json.
  nlohmann::ordered_json result(const Summary& summary) const;

  // Of the steps of this process after warm-up; 0: none yet.
  double median_step_ms() const;

 private:
  const TrainOptions& options_;
  bool prints_;
  Progress progress_;
  std::vector<double> step_ms_;
  double mean_ms_ = 0;
  double flops_per_token_ = 0;  // counted at the first step
};

}  // namespace crest
