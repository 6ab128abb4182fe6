// Measurements that run a recipe, timed like crest bench and crest profile.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/device_json.h"
#include "bench/profiler.h"
#include "device/memory_peak.h"
#include "lab/recipe_measurement.h"
#include "plan/recipe_settings.h"
#include "plan/what_fits.h"
#include "profile/profile_rows.h"
#include "profile/profile_summary.h"

namespace crest {

void bench_columns(const BenchTask& task, const nlohmann::ordered_json& result, lab::Row& row) {
  Samples seconds;
  for (double ms : result.at("samples_ms")) seconds.add(ms / 1e3);
  time_columns(row, seconds);
  row.columns["tokens_per_second"] = rate(double(phase_tokens(task.recipe, task.phase)), row.columns["ms"]);
  row.columns["tflops"] = rate(palm_flops(task.recipe, task.phase) / 1e12, row.columns["ms"]);
  const auto& memory = result.at("memory");
  row.columns["held_bytes"] = lab::Value::number(memory.at("measured_peak_bytes"));
  row.columns["device_peak_bytes"] = lab::Value::number(memory.at("device_peak_bytes"));
  for (const char* column : {"context_start_bytes", "context_bytes"})
    row.columns[column] = memory.at(column).is_null()
                              ? lab::Value::missing("the driver does not report the size of a CUDA context")
                              : lab::Value::number(memory.at(column));
  const std::string whole = "these ranks have no pipeline stages";
  auto of_stages = [&](const char* column, const char* key, const char* inner) {
    lab::Value& value = row.columns[column];
    if (!result.contains("pipeline")) return void(value = lab::Value::missing(whole));
    const auto& found = result.at("pipeline").at(key);
    value = lab::Value::number(inner ? found.at(inner) : found);
  };
  of_stages("bubble", "bubble", "measured");
  of_stages("bubble_simulated", "bubble", "simulated");
  of_stages("bubble_planned", "bubble", "planned");
  if (lab::Value& bubble = row.columns["bubble"]; bubble.known()) {
    const auto& found = result.at("pipeline").at("bubble");
    bubble = lab::Value::range(bubble.x, found.at("measured_low"), found.at("measured_high"));
  }
  of_stages("imbalance_ms", "imbalance_ms", nullptr);
  of_stages("stage_transfers_ms", "transfers_ms", nullptr);
  of_stages("transfer_ms", "transfer_ms", nullptr);
}

void record_bench(BenchMeasure& bench, RunRecord& record, const nlohmann::ordered_json& result,
                  const std::vector<bool>& throttled) {
  std::vector<SampleRow> samples;
  for (double ms : result.at("samples_ms")) {
    size_t i = samples.size();
    samples.push_back({ms, int(i), "", i < throttled.size() && throttled[i]});
  }
  bench.recorder().add_samples(record, samples);
  bench.finish(record, "done", result);
}

void profile_columns(const Profile& p, lab::Row& row) {
  Samples seconds;
  for (double ms : p.step_ms) seconds.add(ms / 1e3);
  time_columns(row, seconds);
  row.columns["tokens_per_second"] = rate(double(p.tokens), row.columns["ms"]);
  row.columns["tflops"] = rate(p.model_flops / 1e12, row.columns["ms"]);
  row.columns["held_bytes"] = lab::Value::number(double(p.memory.measured_peak_bytes));
  row.columns["device_peak_bytes"] = lab::Value::number(double(p.memory.device_peak_bytes));
  row.columns["profiled_ms"] = median_of(Samples(p.profiled_ms));
  row.columns["span_ms"] = lab::Value::number(p.span_ms);
  row.columns["busy_ms"] = lab::Value::number(p.busy_ms);
  row.columns["idle_ms"] = lab::Value::number(p.idle_ms);
  row.columns["launches"] = lab::Value::number(double(p.launches));
  if (!p.environment.is_object() || !p.environment.contains("libraries")) return;
  for (auto& [column, library] : {std::pair("cublaslt", "cuBLASLt"), {"cudnn", "cuDNN"}, {"onednn", "oneDNN"}})
    row.columns[column] = lab::Value::of_text(p.environment.at("libraries").value(library, "none"));
}

void record_profile(BenchMeasure& bench, RunRecord& record, const Profile& p) {
  std::vector<SampleRow> samples;
  for (size_t i = 0; i < p.step_ms.size(); ++i)
    samples.push_back({p.step_ms[i], int(i), "", i < p.throttled.size() && p.throttled[i] != 0});
  bench.recorder().add_samples(record, samples);
  bench.recorder().set_document(record, "profile", to_json(p));
  bench.finish(record, "done", profile_result(p, p.device.value("name", "")));
}

static constexpr std::array<const char*, 4> peak_columns = {"tuning_peak_bytes", "tuning_transient_bytes",
                                                            "capture_peak_bytes", "capture_transient_bytes"};

// Ends the measurement of a part and returns its peak.
static int64_t peak_of(const std::string& part, MemoryPeak& peak, lab::Row& row) {
  MemoryPeak::Bytes bytes = peak.stop();
  auto set = [&](const char* what, int64_t x) {
    row.columns[part + what] =
        bytes.missing.empty() ? lab::Value::number(double(x)) : lab::Value::missing(bytes.missing);
  };
  set("_peak_bytes", bytes.peak);
  set("_transient_bytes", bytes.transient());
  return bytes.peak;
}

bool TimedMeasurement::set(const std::string& key, const std::string& value) {
  if (key != "device") return RecipeMeasurement::set(key, value);
  plan_for(value);
  return planned_ = true;
}

void TimedMeasurement::run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
                           Profile&) const {
  BenchMeasure& bench = context.bench;
  BenchTask task = this->task();
  bool peaks = std::any_of(peak_columns.begin(), peak_columns.end(), [&](auto* c) { return e_.uses_column(c); });
  std::optional<MemoryPeak> peak;
  if (peaks) peak.emplace(device_);
  auto measured = bench.make_runner(std::move(session), task, limit_);
  int64_t most = 0;
  if (peaks) {
    most = peak_of("tuning", *peak, row);
    peak.emplace(device_);
    for (int i = 0; i < 3; ++i) measured->run();  // loads the code, captures, replays
    most = std::max(most, peak_of("capture", *peak, row));
    peak.reset();
  }
  ThrottleWatch watch(throttle_poll(device_));
  Samples seconds = crest::measure(
      [&] {
        BenchMeasure::check_interrupt();
        double s = measured->run_in_sequence();
        watch.sampled();
        return s;
      },
      rule(context.rounds));
  measured->settle();
  std::vector<bool> marks = watch.last(seconds.count());
  BenchRow result = bench.finished_row(*measured, task, seconds);
  result.throttled = size_t(std::count(marks.begin(), marks.end(), true));
  result.throttle_reasons = watch.reasons();
  result.pipeline = measured->stage_times(int(seconds.count()));
  nlohmann::ordered_json json = to_json(result);
  bench_columns(task, json, row);
  if (auto& whole = row.columns["device_peak_bytes"]; device_.kind == "cpu" && double(most) > whole.x)
    whole = lab::Value::number(double(most));  // measuring the parts reset the peak
  record_bench(bench, record, json, marks);
}

// The clock stops when the last launch returns, without waiting for the device.
static lab::Value launch_time(PhaseRunner& runner) {
  if (runner.session().device.kind == "cpu")
    return lab::Value::missing("the CPU is synchronous: a launch returns when its work is done");
  Samples ms;
  for (int i = 0; i < 6; ++i) {
    BenchMeasure::check_interrupt();
    double before = runner.launch_seconds();
    runner.run();
    ms.add(1e3 * (runner.launch_seconds() - before));
  }
  return median_of(ms);
}

void ProfileMeasurement::run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
                             Profile& detail) const {
  BenchMeasure& bench = context.bench;
  ProfilerOptions options;
  options.before_run = [] { BenchMeasure::check_interrupt(); };
  options.note = [](const std::string& line) { BenchMeasure::say(line); };
  options.rule = rule();
  options.rates = context.rates = device_rates(device_, rates_needed(detail), context.rates);
  check_fits(session, limit_ / recipe_.data_parallel);
  PhaseRunner measured(std::move(session), phase_, bench.options().seed);
  Profile p = run_profiler(measured, options);
  p.recipe = recipe_to_json(recipe_), p.device = device_to_json(device_);
  p.environment = record.environment;
  profile_columns(p, row);
  if (e_.uses_column("launch_ms")) row.columns["launch_ms"] = launch_time(measured);
  record_profile(bench, record, p);
  detail = std::move(p);
}

}  // namespace crest
