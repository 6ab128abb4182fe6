// Runs a recipe in a separate process, crest bench or crest profile (the name of the kind): with
// other libraries or environment variables, which a process reads only at its start, or with
// several ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cuda/loader.h"
#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "host/external.h"
#include "host/own_process.h"
#include "lab/recipe_measurement.h"
#include "plan/recipe_settings.h"

namespace crest {

using Json = nlohmann::ordered_json;

class ProcessMeasurement : public RecipeMeasurement {
 public:
  using RecipeMeasurement::RecipeMeasurement;
  std::string identity() const override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;

 private:
  std::string device_of_process() const;
  std::vector<std::string> arguments(const LabContext& context, const std::string& model_file) const;
  nlohmann::ordered_json document(const LabContext& context) const;

  std::vector<Variable> variables_;  // of the environment
  std::string place_;                // of the libraries, as written in the file
  std::vector<std::string> folders_;
};

namespace {

// An upper-case key is an environment variable.
bool is_variable(const std::string& key) {
  return std::all_of(key.begin(), key.end(),
                     [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

}  // namespace

bool wants_processes(const lab::MeasurementSpec& spec) {
  return std::any_of(spec.settings.begin(), spec.settings.end(),
                     [](auto& s) { return s.first == "libraries" || s.first == "ranks" || is_variable(s.first); });
}

std::string ProcessMeasurement::keys() const {
  return "libraries, environment variables (upper case), " + RecipeMeasurement::keys();
}

bool ProcessMeasurement::set(const std::string& key, const std::string& value) {
  if (is_variable(key))
    variables_.emplace_back(key, value);
  else if (key == "libraries")
    place_ = value;
  else
    return RecipeMeasurement::set(key, value);
  return true;
}

// Ranks take this machine's GPUs in order. Any other measurement has the GPU of its experiment.
std::string ProcessMeasurement::device_of_process() const {
  if (device_.kind == "cpu") return "--device=cpu";
  return recipe_.ranks > 1 ? "--device=cuda" : fmt::format("--device=cuda:{}", device_.index);
}

void ProcessMeasurement::finish() {
  RecipeMeasurement::finish();
  if (place_.empty() || !absent_.empty()) return;
  auto& places = cuda::library_places();
  if (std::find(places.begin(), places.end(), place_) == places.end() && place_.find('/') == std::string::npos)
    fail_usage(fmt::format("'{}' is not a place of libraries", printable(place_)), spec_.places["libraries"],
               did_you_mean(place_, places) + " Places: " + join(places, ", ") + ", or folders separated by ':'.");
  folders_ = cuda::folders_of_place(place_);
  if (!cuda::holds_library(folders_, "cublasLt"))
    absent_ = fmt::format("{} has no libcublasLt.so", place_ == "python"    ? "no searched Python environment"
                                                      : place_ == "toolkit" ? "no searched CUDA toolkit"
                                                      : place_ == "system"  ? "the system's loader"
                                                                            : printable(place_));
}

std::string ProcessMeasurement::identity() const {
  std::string text = RecipeMeasurement::identity() + " " + join(folders_, ":");
  for (auto& [name, value] : variables_) text += fmt::format(" {}={}", name, value);
  return text;
}

std::vector<std::string> ProcessMeasurement::arguments(const LabContext& context, const std::string& model_file) const {
  std::vector<std::string> arguments = {lab::name(e_.kind),
                                        "--json",
                                        "--no-store",
                                        fmt::format("--phase={}", name(phase_)),
                                        fmt::format("--warmup={}", warmup_),
                                        fmt::format("--max-seconds={}", max_seconds_ / context.rounds),
                                        fmt::format("--seed={}", context.bench.options().seed),
                                        device_of_process(),
                                        fmt::format("--threads={}", device_.threads)};
  if (samples_ > 0) arguments.push_back(fmt::format("--samples={}", (samples_ + context.rounds - 1) / context.rounds));
  if (e_.kind == lab::Kind::bench) arguments.push_back("--no-mfu");
  if (!folders_.empty()) arguments.push_back("--libraries=" + join(folders_, ":"));
  for (auto& flag : recipe_flags(recipe_, model_file)) arguments.push_back(flag);
  return arguments;
}

Json ProcessMeasurement::document(const LabContext& context) const {
  TemporaryFolder folder;
  std::string file = folder / "model.toml";
  write_file_atomic(file, to_toml(recipe_.model));
  Json json = run_own_process(arguments(context, file), variables_);
  if (!json.is_array()) return json;
  if (json.empty()) fail("the process printed no row", "crest bench");
  if (json[0].contains("error")) throw Error(Exit::does_not_fit, "the process ran out of memory", "crest bench");
  return json[0];
}

// A failed process leaves a measurement without figures, and the lab continues.
void ProcessMeasurement::run(LabContext& context, CompiledSession, RunRecord& record, lab::Row& row,
                             Profile& detail) const {
  Json json;
  try {
    json = document(context);
  } catch (const Error& e) {
    if (e.code() == Exit::does_not_fit || e.code() == Exit::interrupted) throw;
    row.keys["status"] = "absent", row.absent = e.problem();
    context.bench.finish(record, "failed", nullptr, e.what());
    return;
  }
  if (e_.kind == lab::Kind::bench) {
    bench_columns(task(), json, row);
    record_bench(context.bench, record, json);
  } else {
    detail = profile_from_json(json, "crest profile");
    profile_columns(detail, row);
    record_profile(context.bench, record, detail);
  }
}

std::unique_ptr<LabMeasurement> make_process_measurement(const lab::Experiment& e, lab::MeasurementSpec spec,
                                                         const Device& device, int64_t limit) {
  return std::make_unique<ProcessMeasurement>(e, std::move(spec), device, limit);
}

}  // namespace crest
