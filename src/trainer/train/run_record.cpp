#include "train/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "comm/sent_error.h"
#include "core/to_stderr.h"

namespace crest {

static constexpr double background_wait = 60;  // seconds; importing many runs is slow

LogRow log_row(const StepRow& r) {
  LogRow row;
  row.step = r.step, row.loss = r.loss, row.lr = r.lr, row.grad_norm = r.grad_norm;
  row.step_ms = r.step_ms, row.tokens_per_second = r.tokens_per_second, row.skipped = r.skipped;
  row.wait_ms = r.wait_ms, row.watts = r.watts, row.clock_mhz = r.clock_mhz, row.memory_bytes = r.memory_bytes;
  if (r.update_ms >= 0) row.update_ms = r.update_ms;
  return row;
}

LogRow log_row(const ValidationRow& r) {
  LogRow row;
  row.step = r.step, row.val_loss = r.val_loss;
  return row;
}

namespace {

// The newest record of a run's folder; 0: none. Ignores imported records: they belong to other
// machines.
int64_t record_of(const Store& store, const std::string& folder) {
  RunFilter filter;
  filter.kind = "train";
  for (auto& run : store.list(filter))
    if (run.folder == folder && run.imported_from.empty()) return run.id;
  return 0;
}

}  // namespace

TrainingRecord::TrainingRecord(const TrainOptions& options, std::function<void(const std::string&)> warn)
    : options_(options), warn_(std::move(warn)) {
  if (!options.record) return;
  Patience patience;
  patience.changing = [this] { return nobody_waits_ ? background_wait : options_.record->wait; };
  patience.notice = [this](const std::string& text) {
    if (!nobody_waits_) to_stderr("crest: {}\n", text);
  };
  auto warn_later = [this](const std::string& text) {
    std::lock_guard lock(mutex_);
    warning_ = text;
  };
  try {
    recorder_ = Recorder(options.record->store, warn_later, patience);
  } catch (const StoreBusy& e) {
    do_without(e);
  }
}

void TrainingRecord::do_without(const StoreBusy& error) {
  recorder_ = Recorder();
  warn_(fmt::format("the run is not recorded: {} ({})", error.problem(), error.where()));
}

TrainingRecord::~TrainingRecord() {
  nobody_waits_ = false;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  writer_.join();
}

void TrainingRecord::begin(const RunFiles& files, const Json& settings) {
  if (!recorder_.on()) return;
  record_ = options_.record->head;
  for (auto& [key, value] : settings.items()) record_.recipe[key] = value;
  record_.folder = std::filesystem::weakly_canonical(files.folder()).string();
  try {
    int64_t earlier = options_.resume || options_.restarted ? record_of(*recorder_.store(), record_.folder) : 0;
    recorder_.begin(record_, earlier);
  } catch (const StoreBusy& e) {
    return do_without(e);
  }
  for (auto& r : files.steps()) rows_.push_back(log_row(r));
  for (auto& r : files.validations()) rows_.push_back(log_row(r));
  std::stable_sort(rows_.begin(), rows_.end(), [](auto& a, auto& b) { return a.step < b.step; });
  nobody_waits_ = true;
  writer_ = Thread([this] { write_until_stopped(); },
                   [this](const std::exception_ptr& error) {
                     std::lock_guard lock(mutex_);
                     warning_ = "the run is no longer recorded: " + sent_error(error).problem;
                   });
}

void TrainingRecord::add(const StepRow& row) { add(log_row(row)); }
void TrainingRecord::add(const ValidationRow& row) { add(log_row(row)); }

void TrainingRecord::add(LogRow row) {
  if (record_.id == 0) return;
  {
    std::lock_guard lock(mutex_);
    rows_.push_back(row);
  }
  pass_warning_on();
}

// Called only by the writer and, after it has ended, by finish().
void TrainingRecord::write_rows() {
  std::vector<LogRow> rows;
  {
    std::lock_guard lock(mutex_);
    rows.swap(rows_);
  }
  if (!rows.empty()) recorder_.add_log(record_, rows);
}

void TrainingRecord::write_until_stopped() {
  for (bool stop = false; !stop;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::seconds(1), [&] { return stop_; });
      stop = stop_;
    }
    write_rows();
  }
}

void TrainingRecord::pass_warning_on() {
  std::string text;
  {
    std::lock_guard lock(mutex_);
    text.swap(warning_);
  }
  if (!text.empty()) warn_(text);
}

void TrainingRecord::finish(const std::string& status, const Json& result, const std::string& error) {
  if (record_.id == 0) return;
  nobody_waits_ = false;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  writer_.join();
  record_.status = status, record_.result = result, record_.error = error;
  record_.environment_after = environment_after_json(options_.device, options_.record->before);
  recorder_.finish(record_);
  record_.id = 0;
  pass_warning_on();
}

}  // namespace crest
