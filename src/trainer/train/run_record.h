// Records a training run in the run store. A thread writes rows once a second, so a slow disk never
// delays a step. If the store fails, the only effect is one warning.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/thread.h"
#include "store/recorder.h"
#include "train/run.h"
#include "train/run_files.h"

namespace crest {

// A step as a row of a record's log.
LogRow log_row(const StepRow& row);
LogRow log_row(const ValidationRow& row);

class TrainingRecord {
 public:
  // Opens the store. Throws on failure, but only warns of a locked store. Records nothing without
  // options.record. warn is called by the thread of add() and finish().
  TrainingRecord(const TrainOptions& options, std::function<void(const std::string&)> warn);
  ~TrainingRecord();
  TrainingRecord(const TrainingRecord&) = delete;
  TrainingRecord& operator=(const TrainingRecord&) = delete;

  // Starts a record, or continues the store's record of this run's folder, with the rows from the
  // files. settings: training settings, in addition to the recipe's.
  void begin(const RunFiles& files, const Json& settings);
  void add(const StepRow& row);
  void add(const ValidationRow& row);
  // status: done, interrupted or failed. Only the first call has an effect.
  void finish(const std::string& status, const Json& result, const std::string& error = "");

 private:
  void add(LogRow row);
  void write_rows();
  void write_until_stopped();
  void pass_warning_on();

  void do_without(const StoreBusy& error);

  const TrainOptions& options_;
  std::function<void(const std::string&)> warn_;
  std::atomic<bool> nobody_waits_ = false;  // for the store: its writer is a separate thread
  Recorder recorder_;
  RunRecord record_;

  std::mutex mutex_;  // protects the members below
  std::condition_variable wake_;
  std::vector<LogRow> rows_;
  std::string warning_;
  bool stop_ = false;
  Thread writer_;  // last: everything it uses must be constructed before
};

}  // namespace crest
