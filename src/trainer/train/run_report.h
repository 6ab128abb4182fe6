// Prints a training run's description, steps and end to standard error. With --json, prints one
// document to standard output.
#pragma once
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/engine.h"
#include "train/pipeline_times.h"
#include "train/progress.h"
#include "train/run.h"
#include "train/run_data.h"
#include "train/run_files.h"
#include "train/run_state.h"
#include "train/run_time.h"
#include "train/schedule.h"

namespace crest {

// Why a run ended.
enum class RunEnd { steps, time, stop_after, signal, data, stream, patience, loss };
const char* name(RunEnd end);  // "steps", "time", "stop_after", "signal", "data", "stream", "patience",
                               // "loss"

// What a run took until the first validation with at most --until-loss, or until its end.
struct UntilLoss {
  int64_t step;
  bool reached;
  int64_t tokens;       // trained on until then
  double step_seconds;  // of all steps until then, also before a resume
};

class RunReport {
 public:
  // The options must outlive it. prints: whether this process prints anything.
  RunReport(const TrainOptions& options, bool prints);

  // Prints a line unless --quiet is set; always prints warnings. Only the first process prints.
  void message(const std::string& text);
  void warning(const std::string& text);

  struct Plan {
    const Schedule& schedule;
    bool fitting;                    // the number of steps and its consequences are unknown yet
    int64_t val_every, save_every;   // 0: never; 0: only at the end
    int64_t val_batches, val_rows;   // batches per validation; rows per batch
    double epoch;                    // steps of one pass over the training data; 0: unknown
    std::vector<SourcePass> passes;  // of a mixture
  };
  // Not after a restart by the launcher: the run was described before.
  void describe(Engine& engine, const std::string& data);
  void describe(const RunState& state, const Plan& plan);
  // total_steps -1: unknown yet.
  void step(const StepRow& row, int64_t total_steps, Engine& engine);
  // batches: of each source.
  void validation(const ValidationRow& row, int64_t batches);
  void sample(int64_t step, const std::string& text);
  // Ends the live line.
  void end_steps() { progress_.finish(); }

  struct Summary {
    int64_t step, total_steps;  // total 0: unknown yet
    RunEnd end;
    std::string signal;  // "SIGTERM"
    bool saved;
    double loss, val_loss;  // NaN: none
    int64_t loss_step, val_step;
    BestLoss best;
    UntilLoss until_loss;
    int64_t kept_step;  // of checkpoints/best; -1: none
    double kept_loss;   // the validation loss there
    double epochs;      // passes over the training data; NaN: unknown
    // Of a mixture: its sources, and their losses in the last validation.
    std::vector<SourcePass> passes;
    std::vector<std::pair<std::string, double>> val_losses;
    int64_t rows_left;      // of an ended stream: not enough for a step
    double step_ms_median;  // over all steps of the run after warm-up, including steps before the resume
    // Parts of the first value; steps take the rest. saving: without the last checkpoint.
    double seconds, saving_seconds, last_save_seconds, validation_seconds, sampling_seconds;
    uint64_t skipped_samples;               // after spikes of the loss
    std::string curve;                      // text for a terminal
    std::optional<PipelineTimes> pipeline;  // of some steps with pipeline stages
  };
  void finish(const Summary& summary);
  // A skipped step. searching: for a loss scale.
  void skipped(int64_t step, const StepResult& result, bool searching);
  // At the end of a run saved at `step`: warns if weights there are NaN or infinite.
  void not_finite(const std::string& checkpoints, int64_t step);
  // Returns the read error with a note: the run is saved at `step`.
  std::exception_ptr unreadable(const std::exception_ptr& error, int64_t step) const;
  // The --json document.
  nlohmann::ordered_json result(const Summary& summary) const;

  // Over this process's steps after warm-up; 0: none yet.
  double median_step_ms() const;

 private:
  const TrainOptions& options_;
  bool prints_;
  Progress progress_;
  std::vector<double> step_ms_;
  double mean_ms_ = 0;
  double flops_per_token_ = 0;  // counted at the first step
  RunTime time_;                // of the steps
};

}  // namespace crest
