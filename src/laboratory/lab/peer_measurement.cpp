// Measurements with the setting `peer`: the same step in another framework. A script prints its
// step time as JSON (studies/peers).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "host/external.h"
#include "host/stop_signal.h"
#include "lab/measurement.h"
#include "store/new_record.h"

namespace crest {

class PeerMeasurement : public LabMeasurement {
 public:
  using LabMeasurement::LabMeasurement;
  std::string identity() const override { return LabMeasurement::identity() + " " + command_; }
  // A script takes longer to start, compile and warm up than to measure.
  bool in_both_rounds() const override { return false; }

 protected:
  bool set(const std::string& key, const std::string& value) override;
  void finish() override;
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;

 private:
  std::string script_;   // as in the file
  std::string command_;  // with the measurement's settings, for a shell
};

// Crest and the peer share a recipe, so a peer accepts every setting of the other measurements.
bool PeerMeasurement::set(const std::string& key, const std::string& value) {
  if (key == "peer")
    script_ = value;
  else
    LabMeasurement::set(key, value);
  return true;
}

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

}  // namespace

// "torch_gpt2.py --batch {batch}": {KEY} is replaced by the measurement's value of the key.
void PeerMeasurement::finish() {
  std::string text;
  for (size_t i = 0; i < script_.size(); ++i) {
    size_t end = script_[i] == '{' ? script_.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      text += script_[i];
      continue;
    }
    std::string key = script_.substr(i + 1, end - i - 1);
    auto value = spec_.keys.find(key);
    if (value == spec_.keys.end())
      fail_usage(fmt::format("the measurement has no key '{}'", printable(key)), spec_.places["peer"],
                 "{KEY} in peer is the measurement's value of a key.");
    text += shell_word(value->second), i = end;
  }
  std::string folder = variable("CREST_PEERS", "");
  if (folder.empty()) absent_ = "no peer is installed (CREST_PEERS names the folder studies/peers)";
  spec_.keys.erase("peer");  // tables have no key for a command
  command_ = fmt::format("{} {}/{}", shell_word(variable("CREST_PYTHON", "python3")), shell_word(folder), text);
}

namespace {

// Its own samples if it prints them, else its median alone. In seconds.
Samples samples_of(const nlohmann::ordered_json& json, double median_ms) {
  Samples seconds;
  auto it = json.find("samples_ms");
  const bool has_samples = it != json.end() && it->is_array() && !it->empty() &&
                           std::all_of(it->begin(), it->end(), [](auto& x) { return x.is_number() && x > 0; });
  if (!has_samples) {
    seconds.add(median_ms / 1e3);
    return seconds;
  }
  for (auto& x : *it) seconds.add(x.get<double>() / 1e3);
  return seconds;
}

}  // namespace

// A failed peer leaves a measurement without figures, and the lab continues.
void PeerMeasurement::measure(LabContext& context, const std::string& grid, lab::Row& row) const {
  BenchMeasure::check_interrupt();
  RunRecord record = context.bench.begin("peer", device_, spec_.label, grid);
  row.run = record.uid;
  ExternalOptions options;
  options.canceled = [] { return StopSignal::requested(); };
  ExternalResult result;
  try {
    result = run_external(command_, options);
  } catch (const Error& error) {
    context.bench.finish(record, "failed", nullptr, error.what());
    if (error.code() == Exit::interrupted) throw;
    row.keys["status"] = "failed", row.absent = error.problem();
    return;
  }
  auto json = nlohmann::ordered_json::parse(result.json, nullptr, false);
  auto set = [&](const char* column, const char* key, double scale) {
    if (auto it = json.find(key); it != json.end() && it->is_number())
      row.columns[column] = lab::Value::number(it->get<double>() * scale);
  };
  const Samples seconds = samples_of(json, result.step_ms);
  time_columns(row, seconds);
  if (auto it = json.find("tok_s"); it != json.end() && it->is_number())  // of the median: with the interval of ms
    row.columns["tokens_per_second"] = rate(it->get<double>() * result.step_ms / 1e3, row.columns["ms"]);
  set("held_bytes", "peak_alloc_gib", 1073741824.0);
  set("device_peak_bytes", "peak_reserved_gib", 1073741824.0);
  std::vector<SampleRow> samples;
  for (double x : seconds.values()) samples.push_back({x * 1e3, int(samples.size()), "", false});
  context.bench.recorder().add_samples(record, samples);
  context.bench.finish(record, "done", json);
}

std::unique_ptr<LabMeasurement> make_peer_measurement(const lab::Experiment& e, lab::MeasurementSpec spec,
                                                      const Device& device, int64_t limit) {
  return std::make_unique<PeerMeasurement>(e, std::move(spec), device, limit);
}

}  // namespace crest
