// kind = "comm": a collective between ranks, measured by crest comm in separate processes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/discover.h"
#include "backend/cuda/nccl.h"
#include "backend/device_json.h"
#include "bench/comm_options.h"
#include "comm/gloo.h"
#include "core/error.h"
#include "core/text.h"
#include "device/find.h"
#include "host/own_process.h"
#include "lab/measurement.h"
#include "store/new_record.h"

namespace crest {

using Json = nlohmann::ordered_json;

// Ranks started once to measure all sizes of the experiment.
class CommLaunch {
 public:
  explicit CommLaunch(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  const std::vector<std::string>& arguments() const { return arguments_; }
  void add(int64_t bytes) { sizes_.insert(bytes); }
  // {"row": of this size, "group": shared by all sizes}, as printed by crest comm --json. Taking a
  // size again measures it again, alone. Throws the errors of crest comm.
  nlohmann::ordered_json take(int64_t bytes);

 private:
  void launch(std::set<int64_t> sizes);

  std::vector<std::string> arguments_;
  std::set<int64_t> sizes_;                             // not measured yet
  std::map<int64_t, nlohmann::ordered_json> measured_;  // not returned yet
};

class CommMeasurement : public LabMeasurement {
 public:
  using LabMeasurement::LabMeasurement;
  std::string identity() const override;
  // Measurements with the same operation, backend and number of ranks share a launch.
  void group_with(const LabMeasurements& measurements) override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;

 private:
  RunRecord begin(LabContext& context, const std::string& grid) const;

  std::string operation_ = "all-reduce", backend_, dtype_ = "fp32";
  int ranks_ = 2;
  int64_t bytes_ = 0;
  std::shared_ptr<CommLaunch> launch_;
};

void CommLaunch::launch(std::set<int64_t> sizes) {
  std::vector<std::string> list, arguments = arguments_;
  for (int64_t bytes : sizes) list.push_back(std::to_string(bytes));
  arguments.push_back("--sizes=" + join(list, ","));
  Json document = run_own_process(arguments);
  const Json &rows = document.at("rows"), &group = document.at("groups").at(0);
  if (rows.size() != sizes.size()) fail(fmt::format("{} rows for {} sizes", rows.size(), sizes.size()), "crest comm");
  auto row = rows.begin();  // sorted like sizes; bytes of a row may be rounded to the number of ranks
  for (int64_t bytes : sizes)
    measured_[bytes] = {{"row", *row++}, {"group", group}, {"library", document.at("library")}};
}

// The launch reports a size that does not fit before any rank starts. Retry without the largest.
Json CommLaunch::take(int64_t bytes) {
  if (!measured_.count(bytes)) {
    std::set<int64_t> wanted = std::move(sizes_);
    sizes_.clear();
    if (!wanted.count(bytes)) wanted = {bytes};
    for (bool done = false; !done;) try {
        launch(wanted);
        done = true;
      } catch (const Error& e) {
        if (e.code() != Exit::does_not_fit || *wanted.rbegin() <= bytes) throw;
        wanted.erase(*wanted.rbegin());
      }
  }
  auto found = measured_.find(bytes);
  if (found == measured_.end()) fail(fmt::format("the ranks did not measure {} B", bytes), "crest comm");
  Json result = std::move(found->second);
  measured_.erase(found);
  return result;
}

std::string CommMeasurement::keys() const {
  return "operation, backend, ranks, bytes, dtype, samples, warmup, max_seconds, threads";
}

bool CommMeasurement::set(const std::string& key, const std::string& value) {
  if (key == "operation") {
    operation_ = name(parse_collective(value));
  } else if (key == "backend") {
    const std::vector<std::string> known = {"gloo", "nccl"};
    if (std::find(known.begin(), known.end(), value) == known.end())
      fail_usage(fmt::format("unknown backend '{}'", printable(value)), "", did_you_mean(value, known));
    backend_ = value;
  } else if (key == "dtype") {
    dtype_ = flag_name(parse_comm_dtype(value));
  } else if (key == "ranks") {
    ranks_ = int(number(key, value, 1, 128));
  } else if (key == "bytes") {
    bytes_ = parse_bytes(value, key);
    if (bytes_ < 1) fail_usage(fmt::format("'{}' is not a message size", printable(value)));
  } else {
    return LabMeasurement::set(key, value);
  }
  return true;
}

void CommMeasurement::finish() {
  if (backend_.empty() || bytes_ == 0) fail_usage("a comm experiment needs backend, ranks and bytes");
  if (backend_ == "gloo") {
    absent_ = gloo_problem();
    if (device_.kind != "cpu") device_ = find_device("cpu", 0);  // Gloo ranks always run on the CPU
    return;
  }
  cuda::Found found = cuda::find_devices();
  int devices = int(found.devices.size());
  if (devices == 0)
    absent_ = found.problem;
  else if (std::string problem = nccl_problem(); !problem.empty())
    absent_ = problem;
  else if (ranks_ > devices)
    absent_ = fmt::format("{} ranks need {} GPUs; this machine has {}", ranks_, ranks_, devices);
  else if (device_.kind == "cpu")
    device_ = find_device("cuda", 0);
}

std::string CommMeasurement::identity() const {
  return fmt::format("{} {} {} {} {} {}", operation_, backend_, ranks_, bytes_, dtype_, LabMeasurement::identity());
}

void CommMeasurement::group_with(const LabMeasurements& measurements) {
  if (!absent_.empty()) return;
  std::vector<std::string> arguments = {"comm",
                                        operation_,
                                        "--json",
                                        "--no-store",
                                        "--backend=" + backend_,
                                        fmt::format("--ranks={}", ranks_),
                                        "--dtype=" + dtype_,
                                        fmt::format("--warmup={}", warmup_),
                                        fmt::format("--max-seconds={}", max_seconds_)};
  if (samples_ > 0) arguments.push_back(fmt::format("--samples={}", samples_));
  if (backend_ == "gloo") arguments.push_back("--device=cpu");
  for (auto& measurement : measurements)
    if (auto& other = static_cast<const CommMeasurement&>(*measurement).launch_;
        other && other->arguments() == arguments)
      launch_ = other;
  if (!launch_) launch_ = std::make_shared<CommLaunch>(arguments);
  launch_->add(bytes_);
}

RunRecord CommMeasurement::begin(LabContext& context, const std::string& grid) const {
  RunRecord record;
  Conditions before = read_conditions(device_);
  record.kind = "comm", record.phase = operation_, record.grid = grid;
  record.name = fmt::format("comm-{}-{}-{}", operation_, backend_, ranks_);
  record.command = command_line(), record.device = device_to_json(device_);
  record.environment = environment_json(device_, before);
  context.bench.recorder().begin(record);
  return record;
}

void CommMeasurement::measure(LabContext& context, const std::string& grid, lab::Row& row) const {
  RunRecord record = begin(context, grid);
  row.run = record.uid;
  auto finish = [&](const char* status, const std::string& error) {
    record.status = status, record.error = error;
    context.bench.recorder().finish(record);
  };
  Json result;
  try {
    result = launch_->take(bytes_);
  } catch (const Error& e) {
    bool large = e.code() == Exit::does_not_fit;
    finish(large ? "out_of_memory" : e.code() == Exit::interrupted ? "interrupted" : "failed", e.what());
    if (e.code() == Exit::interrupted) throw;
    row.keys["status"] = large ? "out_of_memory" : "absent";
    row.absent = e.problem();
    return;
  }
  const Json &figures = result["row"], &group = result["group"], &startup = group["startup"];
  Samples seconds;
  std::vector<SampleRow> samples;
  for (double ms : figures["samples_ms"]) {
    seconds.add(ms / 1e3);
    samples.push_back({ms, int(samples.size()), "", false});
  }
  time_columns(row, seconds);
  auto set = [&](const char* column, const Json& x) {
    if (x.is_number()) row.columns[column] = lab::Value::number(x.get<double>());
  };
  set("gigabytes", double(figures["bytes"]) / 1e9);
  row.columns["algorithm_gb_per_second"] = rate(double(figures["bytes"]) / 1e9, row.columns["ms"]);
  row.columns["bus_gb_per_second"] =
      rate(double(figures["bytes"]) / 1e9 * bus_factor(parse_collective(operation_), ranks_), row.columns["ms"]);
  set("startup_ms", 1e3 * (double(startup["process_seconds"]) + double(startup["connect_seconds"])));
  set("first_call_ms", startup["first_call_ms"]);
  set("latency_ms", group["latency_ms"]);
  set("link_gb_per_second", group["link"]["gb_per_s"]);
  context.bench.recorder().add_samples(record, samples);
  record.result = result;
  finish("done", "");
}

std::unique_ptr<LabMeasurement> make_comm_measurement(const lab::Experiment& e, lab::MeasurementSpec spec,
                                                      const Device& device, int64_t limit) {
  return std::make_unique<CommMeasurement>(e, std::move(spec), device, limit);
}

}  // namespace crest
