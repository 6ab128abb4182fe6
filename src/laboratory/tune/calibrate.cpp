#include "tune/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "bench/profiler.h"
#include "core/error.h"
#include "core/text.h"
#include "device/conditions.h"
#include "host/environment.h"
#include "plan/recipe_settings.h"
#include "plan/what_fits.h"
#include "predict/planned_time.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"

namespace crest {

namespace {

constexpr const char *adamw = "adamw", *flash = "flash";
constexpr const char* bf16_states = "adamw-bf16-stochastic";  // with gradients in bf16
constexpr int few = 8192;                                     // tokens of a vocabulary

// layers 0: all.
struct Slice {
  const char* device;
  const char* model;
  int layers, batch, seq;
  const char* recompute;
  const char* optimizer = adamw;
  const char* attention = flash;
  bool always = false;  // in every precision, not just the device's own
  int vocab = 0;        // 0: the model's
  std::string text(const Recipe& r) const {
    std::string what = model;
    if (layers) what += ", " + format_number_of(layers, "layer");
    if (vocab) what += fmt::format(", {} tokens", vocab);
    what += fmt::format(", {}, recompute {}, batch {}, seq {}", r.precision, r.recompute, batch, seq);
    if (r.optimizer != "adamw") what += fmt::format(", {}", r.optimizer);
    if (r.attention != "flash") what += fmt::format(", {} attention", r.attention);
    return what;
  }
};

// Small and large widths, short and long sequences, few and many tokens, a large and a small
// vocabulary, with and without recompute. On a GPU also few and many layers where launches
// dominate, heads of 64 and of 128 with shared keys, wide layers, and inexpensive slices: other
// optimizers, attention without flash. Precisions other than bf16 differ in matrix products and
// attention, so on a GPU fewer slices are enough.
constexpr Slice slices[] = {
    {"cpu", "nano", 0, 1, 128, "auto", adamw, flash, true},
    {"cpu", "nano", 0, 8, 128, "auto", adamw, flash, true},
    {"cpu", "nano", 0, 8, 128, "none", adamw, flash, true},
    {"cpu", "llama-nano", 0, 4, 128, "auto", adamw, flash, true},
    {"cpu", "micro", 2, 4, 256, "auto", adamw, flash, true},
    {"cpu", "gpt2-124M", 2, 1, 64, "auto", adamw, flash, true},
    {"cpu", "gpt2-124M", 2, 4, 256, "auto", adamw, flash, true},
    {"cpu", "gpt2-124M", 2, 1, 1024, "none", adamw, flash, true},
    {"cpu", "gpt2-355M", 2, 2, 128, "auto", adamw, flash, true},
    {"cpu", "gpt2-1558M", 1, 1, 256, "auto", adamw, flash, true},
    {"cuda", "micro", 2, 16, 256, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 2, 1, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 0, 1, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 0, 4, 256, "auto"},
    {"cuda", "gpt2-124M", 2, 4, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 2, 16, 1024, "none"},
    {"cuda", "gpt2-124M", 2, 64, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 2, 2, 8192, "auto"},
    {"cuda", "gpt2-355M", 2, 8, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-355M", 2, 32, 1024, "auto"},
    {"cuda", "gpt2-774M", 2, 16, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-1558M", 2, 2, 1024, "auto"},
    {"cuda", "gpt2-1558M", 2, 4, 1024, "auto", adamw, flash, true},
    {"cuda", "gpt2-1558M", 2, 16, 1024, "auto", adamw, flash, true},
    {"cuda", "llama-1B", 2, 1, 2048, "auto"},
    {"cuda", "llama-1B", 2, 4, 4096, "auto", adamw, flash, true},
    {"cuda", "gpt2-124M", 2, 1, 16384, "auto"},
    {"cuda", "llama-1B", 2, 1, 8192, "auto", adamw, flash, false, few},
    {"cuda", "llama-1B", 1, 1, 32768, "auto", adamw, flash, false, few},
    {"cuda", "llama-1B", 1, 1, 65536, "auto", adamw, flash, false, few},
    {"cuda", "llama-8B", 1, 2, 1024, "auto", bf16_states},
    {"cuda", "llama-8B", 1, 2, 4096, "auto", adamw, flash, true, few},
    {"cuda", "llama-8B", 1, 1, 32768, "auto", adamw, flash, false, few},
    {"cuda", "gpt2-124M", 2, 4, 1024, "auto", "adamw-8bit"},
    {"cuda", "gpt2-124M", 2, 4, 1024, "auto", "lion"},
    {"cuda", "gpt2-124M", 2, 4, 1024, "auto", "muon"},
    {"cuda", "gpt2-124M", 2, 4, 1024, "auto", "adafactor"},
    {"cuda", "gpt2-124M", 2, 8, 1024, "auto", adamw, "naive"},
};

}  // namespace

std::vector<CalibrationStep> calibration_steps(const Device& device, int64_t limit,
                                               const std::vector<std::string>& given) {
  std::vector<std::string> precisions;
  auto add = [&](const std::string& p) {
    if (std::find(precisions.begin(), precisions.end(), p) == precisions.end()) precisions.push_back(p);
  };
  for (auto& p : given.empty() ? std::vector<std::string>{"auto"} : given) {
    if (p != "auto") add(p);
    if (p == "auto" && (device.kind == "cpu" || !device.native_bf16)) add("fp32");
    if (p == "auto" && device.native_bf16) add("bf16");
  }
  const std::string own = device.native_bf16 ? "bf16" : "fp32";
  std::vector<CalibrationStep> steps;
  for (auto& precision : precisions)
    for (auto& slice : slices) {
      if (slice.device != device.kind || (!slice.always && precision != own)) continue;
      Recipe r;
      settings_of(r).apply({{"model", {slice.model}},
                            {"batch", {std::to_string(slice.batch)}},
                            {"precision", {precision}},
                            {"recompute", {slice.recompute}},
                            {"optimizer", {slice.optimizer}},
                            {"attention", {slice.attention}},
                            {"gradient-overlap", {"off"}}});  // kernels are timed alone
      if (std::string_view(slice.optimizer) == bf16_states) settings_of(r).apply({{"grad-dtype", {"bf16"}}});
      if (slice.vocab) r.model.vocab = slice.vocab;
      r.model.layers = slice.layers ? slice.layers : r.model.layers;
      r.model.context = std::max<int64_t>(r.model.context, slice.seq);
      r.seq = slice.seq;
      r = resolve(r, device);
      if (compile_phase(r, device, BenchPhase::step, {.verify = false}).planned_bytes() > limit) continue;
      steps.push_back({slice.text(r), r});
    }
  return steps;
}

std::vector<ProfileRate> step_rates(const std::vector<CalibrationStep>& steps, const Device& device,
                                    const std::vector<ProfileRate>& known, const DataSheet* sheet,
                                    const std::function<bool()>& no_time) {
  std::set<std::string> names = {"bandwidth"};
  for (auto& step : steps) {
    names.merge(rates_needed(step_rows(compile_phase(step.recipe, device, BenchPhase::step, {.verify = false}))));
  }
  std::vector<ProfileRate> rates;
  const std::vector<ProfileRate> of_sheet = sheet ? sheet_rates(*sheet) : std::vector<ProfileRate>();
  for (auto& name : names) {
    std::vector<ProfileRate> given = known;
    if (no_time && no_time()) given.insert(given.end(), of_sheet.begin(), of_sheet.end());
    rates.push_back(device_rates(device, {name}, given).at(0));
  }
  return rates;
}

Profile measure_step(const Recipe& recipe, const Device& device, int64_t limit, const StepMeasure& how) {
  CompiledSession session = compile_phase(recipe, device, BenchPhase::step);
  check_fits(session, limit);
  ProfilerOptions options;
  options.before_run = how.before_run;
  options.rule = {
      .warmup = 2, .min_samples = 6, .max_samples = 30, .max_seconds = how.max_seconds, .target_relative_ci = 0.01};
  options.rule.samples_at_limit = 1;
  options.rates = how.rates;
  try {
    PhaseRunner runner(std::move(session), BenchPhase::step, how.seed);
    Profile profile = run_profiler(runner, options);
    // A profiled step starts after the end of the one before. Training queues the next step early.
    Samples seconds = measure(
        [&] {
          how.before_run();
          return runner.run_in_sequence();
        },
        options.rule);
    runner.settle();
    profile.step_ms = seconds.scaled(1e3).values();
    return profile;
  } catch (const std::bad_alloc&) {
    throw Error(Exit::does_not_fit, "the system refused the allocation", "out of memory", "Use a smaller --batch.");
  }
}

std::vector<ProfileRate> link_rates(const Device& device, int64_t limit, const StepMeasure& how) {
  if (device.kind != "cuda" || device.emulated) return {};
  Recipe r;
  settings_of(r).apply({{"model", {"llama-8B"}},
                        {"batch", {"1"}},
                        {"precision", {device.native_bf16 ? "bf16" : "fp32"}},
                        {"offload", {"optimizer"}}});
  r.model.layers = 1, r.model.vocab = few, r.seq = 128;
  r = resolve(r, device);
  StepMeasure with = how;
  with.rates = device_rates(device, {std::string(host_link_rate)}, how.rates);
  std::vector<ProfileRate> rates = with.rates;
  if (compile_phase(r, device, BenchPhase::step, {.verify = false}).planned_bytes() > limit) return rates;
  double in = 0, out = 0, in_ms = 0, out_ms = 0;
  for (auto& row : measure_step(r, device, limit, with).instrs) {
    if (!crosses_host_link(row)) continue;
    (row.op == "copy_in" ? in : out) += row.bytes, (row.op == "copy_in" ? in_ms : out_ms) += row.ms;
  }
  if (in_ms > 0 && out_ms > 0)
    rates.push_back({std::string(host_link_update_rate), 1e3 * std::min(in / in_ms, out / out_ms),
                     fmt::format("measured in an update, {} to the device, {} to the host",
                                 format_si(1e3 * in / in_ms, "B/s"), format_si(1e3 * out / out_ms, "B/s"))});
  return rates;
}

CalibrationSource source_here(const Device& device) {
  Conditions now = read_conditions(device);
  CalibrationSource s;
  s.date = now.time_utc, s.device = device.name, s.environment = environment_json(device, now);
  s.crest_version = s.environment.value("crest_version", "");
  return s;
}

Calibration calibrate(const Device& device, int64_t limit, const std::vector<CalibrationStep>& steps,
                      const StepMeasure& how, const std::function<void(size_t, const CalibrationStep&)>& progress,
                      Calibration c) {
  c.kind = device.kind, c.threads = device.threads;
  if (device.kind == "cuda") c.times.set_multiprocessors(device.multiprocessors);
  c.sources.push_back(source_here(device));
  for (size_t i = 0; i < steps.size(); ++i) {
    progress(i, steps[i]);
    c.add(measure_step(steps[i].recipe, device, limit, how));
  }
  return c;
}

}  // namespace crest
