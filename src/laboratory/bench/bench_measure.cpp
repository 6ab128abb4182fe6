#include "bench/bench_measure.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cuda/nvml.h"
#include "backend/device_json.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/data_sheet.h"
#include "device/rank_device.h"
#include "host/memory.h"
#include "host/stop_signal.h"
#include "measure/gemm.h"
#include "model/parameters.h"
#include "plan/plan_json.h"
#include "plan/step_flops.h"
#include "plan/what_fits.h"
#include "predict/defaults.h"
#include "profile/profile_rows.h"
#include "store/new_record.h"
#include "terminal/table.h"
#include "train/defaults_of_first.h"

namespace crest {

static constexpr double no_more_runs = -1;

StoppingRule stopping_rule(int warmup, int samples, int most, double max_seconds) {
  StoppingRule rule{
      .warmup = warmup, .min_samples = int(fewest_for_interval), .max_samples = most, .max_seconds = max_seconds};
  if (samples > 0) {
    rule.min_samples = rule.max_samples = samples;
    rule.max_seconds = 1e9, rule.target_relative_ci = 0;
  }
  return rule;
}

std::string few_samples_note(size_t samples, double max_seconds) {
  if (samples >= fewest_for_interval) return "";
  return fmt::format("{} within --max-seconds {:g}, and fewer than {} give no 95% interval: raise --max-seconds",
                     format_number_of(int64_t(samples), "sample"), max_seconds, fewest_for_interval);
}

BenchMeasure::BenchMeasure(const BenchOptions& o, RankGroup* group)
    : o_(o), group_(group), convention_(parse_flops_convention(o.convention)) {}

BenchMeasure::~BenchMeasure() {
  if (!group_ || !group_->leads()) return;
  try {
    group_->from_first(no_more_runs);
  } catch (const std::exception&) {  // a lost rank: the measuring code already reported it
  }
}

void follow_runs(BenchMeasure& bench, RankGroup& group, const std::vector<BenchTask>& tasks) {
  for (double i; (i = group.from_first(0.0)) != no_more_runs;) {
    const BenchTask& task = tasks.at(size_t(i));
    bench
        .make_runner(
            compile_phase(task.recipe, task.device, task.phase, {.stage = stage_of_rank(task.recipe, group.rank())}),
            task, task.limit)
        ->follow();
  }
}

void BenchMeasure::say(const std::string& line) { to_stderr("{}\n", printable(line, 400)); }

void BenchMeasure::check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest bench");
}

void BenchMeasure::print_head(const Recipe& recipe, const Device& device) const {
  fmt::print("{} ({} parameters) on {}, random tokens, seed {}\n\n", printable(recipe.model.name),
             format_count(double(parameter_count(recipe.model))), device.name, o_.seed);
}

const Device& BenchMeasure::device(const DeviceOptions& options) {
  auto it = devices_.find(options.threads);
  if (it != devices_.end()) return it->second;
  it = devices_.emplace(options.threads, options.find()).first;
  if (group_) connect_devices(*group_, it->second);
  return it->second;
}

BenchTask BenchMeasure::task(const MeasurementOptions& measurement, BenchPhase phase) {
  BenchTask t;
  t.device = device(measurement.device);
  t.limit = measurement.device.limit(t.device);
  auto chosen = [&](const Recipe& given) {
    return resolve(with_defaults(given, t.device, t.limit / given.data_parallel, "", group_ && !group_->leads()),
                   t.device);
  };
  t.recipe = with_defaults_of_first(group_, measurement.recipe.finish(default_model(t.device)), chosen);
  t.recipe = phase_recipe(std::move(t.recipe), phase, measurement.recipe);
  t.phase = phase;
  t.label = measurement.label;
  t.key = run_key(t.recipe, t.device, name(phase), o_.flush_cache ? "flushed caches" : "");
  return t;
}

std::unique_ptr<PhaseRunner> BenchMeasure::make_runner(CompiledSession session, const BenchTask& task,
                                                       int64_t limit) const {
  check_fits(session, limit / session.recipe.data_parallel);
  if (group_ && group_->leads()) group_->from_first(double(task.index));
  try {
    if (group_) check_ranks(*group_, session, task.phase, o_.seed, o_.flush_cache);
    return std::make_unique<PhaseRunner>(std::move(session), task.phase, o_.seed, o_.flush_cache, group_);
  } catch (const std::bad_alloc&) {
    throw Error(Exit::does_not_fit, "the system refused the allocation", "out of memory", "Use a smaller --batch.");
  }
}

BenchPeak BenchMeasure::peak(const std::string& precision, const Device& device) {
  if (precision == "fp8") return peak("bf16", device);  // MFUs of fp8 and bf16 stay comparable
  std::string key = fmt::format("{} {}", precision, device.threads);
  auto it = peaks_.find(key);
  if (it != peaks_.end()) return it->second;
  DType type = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  say(fmt::format("measuring the {} matmul rate ...", precision));
  GemmRate rate = quick_gemm_rate(device, type, precision == "tf32");
  return peaks_[key] = {rate.flops_per_second, fmt::format("measured {} matmul rate of the linear kernel", precision)};
}

BenchRow BenchMeasure::planned_row(const CompiledSession& s, const BenchTask& task) const {
  BenchRow row;
  row.recipe = s.recipe;
  row.device = task.device.name;
  row.phase = task.phase;
  row.planned = s.planned_bytes();
  row.by_category = s.by_category();
  return row;
}

// If the kernel can reset it, the peak resident set covers this measurement only.
BenchRow BenchMeasure::finished_row(PhaseRunner& runner, const BenchTask& task, const Samples& seconds) {
  const CompiledSession& s = runner.session();
  BenchRow row = planned_row(s, task);
  row.seconds = seconds;
  row.tokens = phase_tokens(s.recipe, runner.phase());
  row.flops = phase_flops(s, runner.phase(), convention_);
  row.hardware_flops = row.flops;
  if (convention_ == FlopsConvention::palm && !is_forward(runner.phase())) row.hardware_flops += recomputed_flops(s);
  row.convention = describe(convention_, s.recipe, runner.phase());
  row.held = runner.held_bytes();
  row.device_peak = task.device.kind == "cuda" ? runner.device_bytes() : peak_resident_bytes();
  if (task.device.kind == "cuda" && !task.device.emulated) {
    cuda::ContextBytes context = cuda::context_bytes(task.device.index, row.held);
    row.context_start = context.start, row.context = context.now;
  }
  if (o_.peak > 0)
    row.peak = {o_.peak, "given by --peak"};
  else if (!o_.no_mfu)
    row.peak = peak(s.recipe.precision, task.device);
  if (s.recipe.ranks > 1 && row.peak.flops_per_second > 0 && o_.peak <= 0) {
    row.peak.flops_per_second *= s.recipe.ranks;
    row.peak.source += fmt::format(", of {} ranks", s.recipe.ranks);
  }
  const DataSheet* sheet = task.device.kind == "cuda" ? data_sheet_of(task.device.name) : nullptr;
  if (sheet && !o_.no_mfu)
    if (auto rate = sheet->peak(s.recipe.precision)) row.sheet = {*rate * s.recipe.ranks, sheet->title};
  return row;
}

RunRecord BenchMeasure::begin(const std::string& kind, const BenchTask& task, const std::string& grid) {
  if (!recorder_.on()) return {};
  Conditions before = read_conditions(task.device);
  RunRecord record = new_record(kind, o_.store.name.empty() ? task.name : o_.store.name, task.recipe, task.device,
                                name(task.phase), before);
  record.key = task.key;
  record.grid = grid;
  recorder_.begin(record);
  open_[record.id] = {task.device, before};
  return record;
}

RunRecord BenchMeasure::begin(const std::string& kind, const Device& device, const std::string& name,
                              const std::string& grid) {
  if (!recorder_.on()) return {};
  Conditions before = read_conditions(device);
  RunRecord record;
  record.kind = kind, record.name = name, record.command = command_line(), record.grid = grid;
  record.device = device_to_json(device), record.environment = environment_json(device, before);
  recorder_.begin(record);
  open_[record.id] = {device, before};
  return record;
}

RunRecord BenchMeasure::continue_record(int64_t id, const BenchTask& task) {
  RunRecord record;
  if (!recorder_.on() || id == 0) return record;
  record.id = id;
  open_[id] = {task.device, read_conditions(task.device)};
  return record;
}

// The settings of a peer are unknown: the record has its command and its times.
RunRecord BenchMeasure::begin_peer(const std::string& command, const RunRecord& beside) {
  RunRecord record;
  if (beside.id == 0) return record;
  record.kind = "peer", record.name = "peer: " + printable(command), record.command = command;
  record.grid = beside.grid, record.phase = beside.phase;
  record.device = beside.device, record.environment = beside.environment;
  recorder_.begin(record);
  open_[record.id] = open_[beside.id];
  return record;
}

void BenchMeasure::add_documents(const RunRecord& record, const CompiledSession& session, BenchPhase phase) {
  if (record.id == 0) return;
  recorder_.set_document(record, "plan", plan_document(session));
  recorder_.set_document(record, "program", program_document(session, phase_calls(session, phase)));
}

void BenchMeasure::finish(RunRecord& record, const std::string& status, const Json& result, const std::string& error) {
  if (record.id == 0) return;
  const Open& open = open_[record.id];
  record.environment_after = environment_after_json(open.device, open.before);
  record.status = status;
  record.result = result;
  record.error = error;
  recorder_.finish(record);
  open_.erase(record.id);
  record.id = 0;
}

}  // namespace crest
