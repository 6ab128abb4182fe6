#include "cli/lab_measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/new_record.h"
#include "cli/recipe_json.h"
#include "core/error.h"
#include "core/text.h"
#include "lab/caching_allocator.h"
#include "lab/detail.h"
#include "measure/bench_gemm.h"
#include "measure/memory.h"
#include "measure/profile_rows.h"
#include "measure/profiler.h"
#include "plan/search.h"

namespace crest {

using lab::Kind;
using lab::Row;

namespace {

StoppingRule rule_of(const LabCell& cell) { return stopping_rule(cell.warmup, cell.samples, 100, cell.max_seconds); }

BenchTask task_of(const lab::Experiment& e, const LabCell& cell) {
  BenchTask task;
  task.recipe = cell.recipe, task.device = cell.device, task.limit = cell.limit, task.phase = cell.phase;
  task.key = LabMeasure::key_of(e, cell), task.label = cell.spec.label;
  return task;
}

// Below six samples there is no interval of the median: the extremes stand for it.
lab::Value median_of(const Samples& s) {
  Interval i = s.count() >= 6 ? s.median_interval() : Interval{s.min(), s.max()};
  return lab::Value::range(s.median(), i.low, i.high);
}

void time_columns(Row& row, const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  row.columns["ms"] = median_of(ms);
  Interval mean = ms.count() >= 2 ? ms.mean_interval() : Interval{ms.mean(), ms.mean()};
  row.columns["ms_mean"] = lab::Value::range(ms.mean(), mean.low, mean.high);
  row.columns["ms_std"] = lab::Value::number(ms.std_dev());
  row.columns["ms_min"] = lab::Value::number(ms.min());
  row.columns["ms_max"] = lab::Value::number(ms.max());
  row.columns["samples"] = lab::Value::number(double(ms.count()));
}

// figure / ms, in 1/s times `scale`.
lab::Value rate(double figure, const lab::Value& ms) {
  return lab::calculate('/', lab::Value::number(figure * 1e3), ms);
}

SessionUse use_of(BenchPhase phase) {
  SessionUse use;
  use.validation = phase == BenchPhase::forward;
  use.train = phase != BenchPhase::forward;
  use.update = phase == BenchPhase::step;
  return use;
}

void out_of_memory(Row& row, const std::string& why) {
  row.keys["status"] = "out_of_memory";
  row.absent = "it does not fit in memory" + (why.empty() ? "" : ": " + why);
}

}  // namespace

std::string LabMeasure::key_of(const lab::Experiment& e, const LabCell& cell) {
  if (e.kind == Kind::gemm || !cell.absent.empty()) return "";
  return run_key(cell.recipe, cell.device, name(cell.phase),
                 cell.warmup == 3 ? "" : fmt::format("warmup {}", cell.warmup));
}

void LabMeasure::plan_columns(const lab::Experiment& e, const LabCell& cell, const CompiledSession& s, Row& row) const {
  int64_t ranks = s.recipe.data_parallel, live = 0, instructions = 0;
  auto set = [&](const char* column, double x) { row.columns[column] = lab::Value::number(x); };
  for (auto& p : s.programs) live = std::max(live, p.memory.live_peak);
  for (int call : phase_calls(s, cell.phase)) instructions += int64_t(s.programs[size_t(call)].program.code.size());
  set("parameters", double(s.recipe.model.parameters()));
  set("tokens", double(phase_tokens(s.recipe, cell.phase)));
  set("model_flops", palm_flops(s.recipe, cell.phase));
  set("executed_flops", phase_flops(s, cell.phase, FlopsConvention::executed));
  set("instructions", double(instructions));
  set("planned_bytes", double(s.planned_bytes() * ranks));
  set("persistent_bytes", double(s.persistent_bytes * ranks));
  set("transient_bytes", double(s.transient_bytes * ranks));
  set("live_bytes", double(live * ranks));
  CategoryBytes bytes = s.by_category();
  for (auto category : {Category::weights, Category::gradients, Category::optimizer_state, Category::activations,
                        Category::temporary, Category::workspace})
    set((std::string(name(category)) + "_bytes").c_str(), double(bytes[size_t(category)] * ranks));
  if (e.uses_column("largest_batch"))
    set("largest_batch", double(largest_batch(s, use_of(cell.phase), cell.limit / ranks)));
  if (e.uses_column("caching_bytes")) set("caching_bytes", double(lab::caching_allocator_bytes(s.largest().memory)));
}

void LabMeasure::bench(const lab::Experiment& e, const LabCell& cell, CompiledSession session, RunRecord& record,
                       Row& row) {
  BenchTask task = task_of(e, cell);
  auto measured = bench_.make_cell(std::move(session), task, cell.limit);
  ThrottleWatch watch(throttle_poll(cell.device));
  Samples seconds = measure(
      [&] {
        BenchMeasure::check_interrupt();
        double s = measured->run();
        watch.sampled();
        return s;
      },
      rule_of(cell));
  std::vector<bool> marks = watch.last(seconds.count());
  BenchRow result = bench_.finished_row(*measured, task, seconds);
  result.throttled = size_t(std::count(marks.begin(), marks.end(), true));
  result.throttle_reasons = watch.reasons();
  time_columns(row, seconds);
  row.columns["tokens_per_second"] = rate(double(result.tokens), row.columns["ms"]);
  row.columns["tflops"] = rate(result.flops / 1e12, row.columns["ms"]);
  row.columns["held_bytes"] = lab::Value::number(double(result.held));
  row.columns["device_peak_bytes"] = lab::Value::number(double(result.device_peak));
  std::vector<SampleRow> samples;
  for (size_t i = 0; i < seconds.count(); ++i) samples.push_back({seconds.values()[i] * 1e3, int(i), "", marks[i]});
  bench_.recorder().add_samples(record, samples);
  bench_.finish(record, "done", to_json(result));
}

Profile LabMeasure::profile(const LabCell& cell, CompiledSession session, RunRecord& record, Row& row) {
  ProfilerOptions options;
  options.before_run = [] { BenchMeasure::check_interrupt(); };
  options.note = [](const std::string& line) { BenchMeasure::say(line); };
  StoppingRule rule = rule_of(cell);
  options.rule = rule;
  Profile rows;
  describe_session(rows, session, phase_calls(session, cell.phase));
  options.rates = rates_ = device_rates(cell.device, rates_needed(rows), rates_);
  check_fits(session, cell.limit / cell.recipe.data_parallel);
  BenchCell measured(std::move(session), cell.phase, bench_.options().seed);
  Profile p = run_profiler(measured, options);
  p.recipe = recipe_to_json(cell.recipe), p.device = device_to_json(cell.device);
  p.environment = record.environment;
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
  std::vector<SampleRow> samples;
  for (size_t i = 0; i < p.step_ms.size(); ++i)
    samples.push_back({p.step_ms[i], int(i), "", i < p.throttled.size() && p.throttled[i] != 0});
  bench_.recorder().add_samples(record, samples);
  bench_.recorder().set_document(record, "profile", to_json(p));
  bench_.finish(record, "done", profile_result(p, cell.device.name));
  return p;
}

void LabMeasure::gemm(const LabCell& cell, Row& row) const {
  DType type = cell.precision == "bf16" ? DType::bf16 : cell.precision == "fp16" ? DType::f16 : DType::f32;
  GemmRate rate_of = measure_gemm_rate(type, linear_kernel_factory(cell.device, cell.precision == "tf32"),
                                       {{cell.m, cell.n, cell.k}}, rule_of(cell));
  if (rate_of.seconds.empty()) {
    row.absent = "no fast kernel multiplies " + cell.precision + " here";
    return;
  }
  time_columns(row, rate_of.seconds);
  double flops = 2.0 * double(cell.m) * double(cell.n) * double(cell.k);
  row.columns["tflops"] = rate(flops / 1e12, row.columns["ms"]);
}

Row LabMeasure::row_of(const lab::Experiment& e, const LabCell& cell, const std::string& grid) {
  Row row;
  row.keys = cell.spec.keys;
  row.keys["status"] = "absent";
  row.absent = cell.absent;
  if (!row.absent.empty()) return row;
  row.keys["status"] = "done";
  if (e.kind == Kind::gemm) {
    gemm(cell, row);
    return row;
  }
  reset_peak_resident();
  CompiledSession session = compile_phase(cell.recipe, cell.device, cell.phase, {.verify = false});
  plan_columns(e, cell, session, row);
  Profile detail;
  describe_session(detail, session, phase_calls(session, cell.phase));
  lab::Table values = lab::value_rows(session);
  bool fits = row.columns["planned_bytes"].x <= double(cell.limit);
  if (e.kind != Kind::plan && fits) {
    RunRecord record = bench_.begin(name(e.kind), task_of(e, cell), grid);
    row.run = record.uid;
    try {
      bench_.add_documents(record, session, cell.phase);
      if (e.kind == Kind::bench)
        bench(e, cell, std::move(session), record, row);
      else
        detail = profile(cell, std::move(session), record, row);
    } catch (const Error& error) {
      bool large = error.code() == Exit::does_not_fit;
      bench_.finish(record,
                    large                               ? "out_of_memory"
                    : error.code() == Exit::interrupted ? "interrupted"
                                                        : "failed",
                    nullptr, error.what());
      if (!large) throw;
      out_of_memory(row, error.problem());
    } catch (const std::bad_alloc&) {
      bench_.finish(record, "out_of_memory", nullptr, "the system refused the memory");
      out_of_memory(row, "the system refused it");
    }
  }
  if (!fits) {
    std::string needed = format_bytes(row.columns["planned_bytes"].x), limit = format_bytes(double(cell.limit));
    out_of_memory(row, fmt::format("{} planned, {} there", needed, limit));
  }
  lab::Table table = lab::detail_rows(detail);
  table.rows.insert(table.rows.end(), values.rows.begin(), values.rows.end());
  if (e.kind == Kind::profile && !row.absent.empty())  // times that nobody measured are no zeros
    for (auto& r : table.rows) r.columns.erase("ms");
  lab::add_columns(e, table, row);
  return row;
}

}  // namespace crest
