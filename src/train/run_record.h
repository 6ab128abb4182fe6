// The record of a training run in the run store. Rows are handed to a thread that writes them once a second, so that a
// slow disk never holds up a step; a store that fails costs one warning and nothing else.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/recorder.h"
#include "train/run.h"
#include "train/run_files.h"

namespace crest {

// Rows of a record's log.
LogRow log_row(const StepRow& row);
LogRow log_row(const ValidationRow& row);

class TrainingRecord {
 public:
  // Opens the store; throws when that fails, but one that another process keeps locked costs a warning only. Without
  // options.record nothing is recorded. warn is called by the thread that calls add() and finish().
  TrainingRecord(const TrainOptions& options, std::function<void(const std::string&)> warn);
  ~TrainingRecord();
  TrainingRecord(const TrainingRecord&) = delete;
  TrainingRecord& operator=(const TrainingRecord&) = delete;

  // A new record, or the one that the store has of this run's folder: with the rows that the files have.
  // settings: of training, beside the recipe's.
  void begin(const RunFiles& files, const Json& settings);
  void add(const StepRow& row);
  void add(const ValidationRow& row);
  // status: done, interrupted, failed. The first call counts.
  void finish(const std::string& status, const Json& result, const std::string& error = "");

 private:
  void add(LogRow row);
  void write_rows();
  void write_until_stopped();
  void pass_warning_on();

  void do_without(const StoreBusy& error);

  const TrainOptions& options_;
  std::function<void(const std::string&)> warn_;
  std::atomic<bool> nobody_waits_ = false;  // for the store: its writer has its own thread
  Recorder recorder_;
  RunRecord record_;

  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<LogRow> rows_;
  std::string warning_;
  bool stop_ = false;
  std::thread writer_;  // last: everything it uses is there
};

}  // namespace crest
