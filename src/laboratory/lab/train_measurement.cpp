// kind = "train": trains a recipe on text like crest train. Figures: loss, speed, wait for data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/prepare_text.h"
#include "host/memory.h"
#include "lab/recipe_measurement.h"
#include "store/new_record.h"
#include "train/run.h"
#include "train/run_record.h"
#include "train/training_settings.h"

namespace crest {

class TrainMeasurement : public RecipeMeasurement {
 public:
  TrainMeasurement(const lab::Experiment& e, lab::MeasurementSpec spec, const Device& device, int64_t limit);
  std::string key() const override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;
  BenchTask task() const override;

 private:
  struct Trained;
  void columns(const Trained& trained, lab::Row& row) const;

  TrainOptions training_;
  GivenSettings given_;           // of training_
  std::string data_, tokenizer_;  // as given; "": generated text
  std::string trained_by_;        // the settings outside the recipe
};

namespace {

constexpr int64_t default_steps = 50, default_val_batches = 8;
constexpr size_t untimed = 3;  // the first steps choose kernels and touch memory for the first time
const std::vector<std::string> recipe_measures = {"memory_limit", "threads"};
// Settings of crest bench that have no meaning here, or another one.
const std::vector<std::string> no_keys = {"phase", "samples", "max_seconds"};

bool among(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// A measurement keeps no files and starts from fresh weights; --steps sets its length.
bool is_of_measurements(const Setting& row) {
  return row.group != std::string("Saving and samples") && !among({"data", "init", "max-seconds"}, row.name);
}

}  // namespace

struct TrainMeasurement::Trained {
  std::vector<StepRow> steps;
  std::vector<ValidationRow> validations;
  TrainOutcome outcome;
};

TrainMeasurement::TrainMeasurement(const lab::Experiment& e, lab::MeasurementSpec spec, const Device& device,
                                   int64_t limit)
    : RecipeMeasurement(e, std::move(spec), device, limit) {
  training_.steps = default_steps, training_.val_batches = default_val_batches;
}

std::string TrainMeasurement::keys() const {
  std::vector<std::string> names = {"data", "tokenizer", "loader_delay_ms"};
  for (auto& row : training_settings())
    if (is_of_measurements(row)) names.push_back(row.key());
  return join(names, ", ") + ", " + RecipeMeasurement::keys();
}

bool TrainMeasurement::set(const std::string& key, const std::string& value) {
  const Settings training = settings_of(training_);
  if (among(no_keys, key)) return false;
  if (among(recipe_measures, key)) return RecipeMeasurement::set(key, value);
  if (key == "data")
    data_ = value;
  else if (key == "tokenizer")
    tokenizer_ = value;
  else if (key == "loader_delay_ms")
    training_.loader_delay_ms = number(key, value, 0, 1000);
  else if (auto* row = training.find(key); row && is_of_measurements(*row->setting))
    row->setting->set(*row->setting, row->object,
                      parse_setting(*row->setting, given_[row->setting->name].emplace_back(value)));
  else
    return RecipeMeasurement::set(key, value);  // recipe settings are already part of key()
  trained_by_ += " " + key + "=" + value;
  return true;
}

// As in crest train, the data determine the vocabulary unless `vocab` does, and a preset brings
// settings along.
void TrainMeasurement::finish() {
  settings_of(training_).apply(options_.of_preset(given_));
  uint32_t vocab = Tokenizer::bytes().vocab_size();
  if (!data_.empty()) {
    std::error_code error;
    bool folder = std::filesystem::is_directory(data_, error);
    if (folder && !tokenizer_.empty())
      fail_usage("prepared data already have a tokenizer", "tokenizer", "Leave it out, or name a text file.");
    training_.data = {folder ? data_ : prepare_text({data_}, {.tokenizer = tokenizer_}).folder};
    vocab = Dataset::open(training_.data[0]).vocab_size();
  } else if (!tokenizer_.empty()) {
    fail_usage("generated text uses the byte tokenizer", "tokenizer", "Name a text file with data = \"FILE\".");
  }
  // Shards of llm.c have no tokenizer: their model decides.
  if (vocab && !options_.has("vocab")) options_.given["vocab"] = {std::to_string(vocab)};
  if (training_.val_every < 0) training_.val_every = training_.steps;
  RecipeMeasurement::finish();
}

std::string TrainMeasurement::key() const {
  return absent_.empty() ? run_key(recipe_, device_, name(phase_), "train" + trained_by_) : "";
}

BenchTask TrainMeasurement::task() const {
  BenchTask task = RecipeMeasurement::task();
  task.name = "lab-" + e_.name + (spec_.label.empty() ? "" : ", " + spec_.label);
  return task;
}

void TrainMeasurement::columns(const Trained& t, lab::Row& row) const {
  auto set = [&](const char* column, double x) { row.columns[column] = lab::Value::number(x); };
  size_t last = std::max<size_t>(1, t.steps.size() / 10);
  double sum = 0;
  for (size_t i = t.steps.size() - last; i < t.steps.size(); ++i) sum += t.steps[i].loss;
  set("loss", sum / double(last));
  set("first_loss", t.steps.front().loss);
  if (!t.validations.empty()) set("val_loss", t.validations.back().val_loss);
  Samples seconds, wait;
  for (size_t i = std::min(untimed, t.steps.size() - 1); i < t.steps.size(); ++i) {
    seconds.add(t.steps[i].step_ms / 1e3);
    wait.add(t.steps[i].wait_ms);
  }
  time_columns(row, seconds);
  row.columns["ms"] = row.columns["ms_mean"];
  row.columns["wait_ms"] = mean_of(wait);
  row.columns["tokens_per_second"] = rate(double(recipe_.tokens_per_step()), row.columns["ms"]);
  row.columns["tflops"] = rate(palm_flops(recipe_, phase_) / 1e12, row.columns["ms"]);
  const double tokens = double(recipe_.tokens_per_step());
  auto in_steps = [&](const char* count, const char* time, int64_t steps) {
    set(count, double(steps) * tokens);
    row.columns[time] = lab::calculate('*', row.columns["ms"], lab::Value::number(double(steps)));
  };
  in_steps("trained_tokens", "trained_ms", t.steps.back().step);
  if (training_.until_loss > 0) {
    auto reached = std::find_if(t.validations.begin(), t.validations.end(),
                                [&](auto& v) { return v.val_loss <= training_.until_loss; });
    if (reached != t.validations.end())
      in_steps("until_tokens", "until_ms", reached->step);
    else
      for (const char* column : {"until_tokens", "until_ms"})
        row.columns[column] =
            lab::Value::missing(fmt::format("the validation loss stays above {:g}", training_.until_loss));
  }
  set("held_bytes", double(t.outcome.held_bytes));
  set("device_peak_bytes", double(device_.kind == "cuda" ? t.outcome.device_bytes : peak_resident_bytes()));
}

// Training compiles its own session, including validation.
void TrainMeasurement::run(LabContext& context, CompiledSession, RunRecord& record, lab::Row& row, Profile&) const {
  Trained trained;
  std::vector<LogRow> log;
  TrainOptions o = training_;
  o.recipe = recipe_, o.device = device_, o.memory_limit = limit_;
  if (o.data.empty()) o.data = {prepare_generated_text().folder};
  if (!spec_.keys.count("seed")) o.seed = context.bench.options().seed;
  o.quiet = true, o.save_every = 0;
  o.on_step = [&](const StepRow& r) { trained.steps.push_back(r), log.push_back(log_row(r)); };
  o.on_validation = [&](const ValidationRow& r) { trained.validations.push_back(r), log.push_back(log_row(r)); };
  Recorder& recorder = context.bench.recorder();
  try {
    trained.outcome = run_training(o);
  } catch (const Error& error) {
    recorder.add_log(record, log);
    bool diverged = !trained.steps.empty() && trained.steps.back().skipped;
    if (!diverged) throw;
    row.keys["status"] = "failed", row.absent = "training failed: " + error.problem();
    context.bench.finish(record, "failed", nullptr, error.what());
    return;
  }
  recorder.add_log(record, log);
  if (trained.outcome.interrupted) throw Error(Exit::interrupted, "interrupted", "crest lab");
  columns(trained, row);
  std::vector<SampleRow> samples;
  size_t first = std::min(untimed, trained.steps.size() - 1);
  for (size_t i = first; i < trained.steps.size(); ++i)
    samples.push_back({trained.steps[i].step_ms, int(i - first), "", false});
  recorder.add_samples(record, samples);
  Json result = {{"step", trained.steps.back().step}};
  for (const char* column : {"loss", "first_loss", "val_loss", "ms", "tokens_per_second", "wait_ms", "held_bytes"})
    if (row.columns.count(column)) result[column] = row.columns[column].x;
  context.bench.finish(record, "done", result);
}

std::unique_ptr<LabMeasurement> make_train_measurement(const lab::Experiment& e, lab::MeasurementSpec spec,
                                                       const Device& device, int64_t limit) {
  return std::make_unique<TrainMeasurement>(e, std::move(spec), device, limit);
}

}  // namespace crest
