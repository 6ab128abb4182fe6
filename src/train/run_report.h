// What a training run tells: its description, its steps, and how it ended. Standard error, and one JSON document on
// standard output where that was asked for.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "train/engine.h"
#include "train/progress.h"
#include "train/run.h"
#include "train/run_files.h"
#include "train/run_state.h"
#include "train/schedule.h"

namespace crest {

class RunReport {
 public:
  // The options must outlive it.
  explicit RunReport(const TrainOptions& options);

  // Lines that --quiet leaves out; warnings always come.
  void message(const std::string& text);
  void warning(const std::string& text) { progress_.warning(text); }

  struct Plan {
    const Schedule& schedule;
    bool fitting;                   // the number of steps is not known yet
    int64_t val_every, save_every;  // 0: never, only at the end
  };
  void describe(Engine& engine, const Dataset& data, const RunState& state, const Plan& plan);
  // total_steps -1: not known yet.
  void step(const StepRow& row, int64_t total_steps, Engine& engine);
  void sample(int64_t step, const std::string& text);
  // Ends the live line.
  void end_steps() { progress_.finish(); }

  struct Summary {
    int64_t step;
    bool interrupted;
    double loss, val_loss;  // NaN: none
    double seconds, saving_seconds;
    std::string curve;  // for a terminal
  };
  void finish(const Summary& summary);
  // What --json prints.
  nlohmann::ordered_json result(const Summary& summary) const;

  // Of the steps of this process.
  double median_step_ms(size_t skip_first = 0) const;

 private:
  const TrainOptions& options_;
  Progress progress_;
  std::vector<double> step_ms_;
  double mean_ms_ = 0;
};

}  // namespace crest
