// crest profile: where the time and the memory of a step go, by instruction, kernel, class, layer and phase.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/new_record.h"
#include "cli/options.h"
#include "cli/profile_document.h"
#include "cli/recipe_json.h"
#include "cli/session_json.h"
#include "core/error.h"
#include "core/text.h"
#include "measure/memory.h"
#include "measure/profile_rates.h"
#include "measure/profile_rows.h"
#include "measure/profiler.h"
#include "report/chrome_trace.h"
#include "report/memory_snapshot.h"
#include "report/profile_text.h"
#include "report/table.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

struct Options {
  RecipeOptions recipe;
  DeviceOptions device;
  RecordOptions store;
  std::string phase = "step", rates, method = "auto", trace, snapshot;
  int samples = 0, warmup = 3, top = 15;
  double max_seconds = 10;
  uint64_t seed = 1337;
  ProfileView view;
  bool json = false;
};

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest profile");
}

void say(const std::string& line) { fmt::print(stderr, "{}\n", printable(line, 400)); }

BenchPhase parse_phase(const std::string& text) {
  for (BenchPhase p : {BenchPhase::forward, BenchPhase::backward, BenchPhase::step})
    if (text == name(p)) return p;
  fail_usage(fmt::format("'{}' is not a value of --phase", printable(text)), "--phase",
             did_you_mean(text, {"forward", "backward", "step"}) + " Values: forward, backward, step.");
}

// A wrong path is told before anything is measured.
void check_folder(const std::string& file, const char* flag) {
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    fail("there is no folder " + printable(folder.string()), flag, "Make it, or name another file.");
}

class ProfileCommand {
 public:
  explicit ProfileCommand(const Options& o) : o_(o) {
    given_rates_ = parse_rates(o.rates, "--rates");
    profile_shares(Profile(), o.view);  // refuses wrong --by and --sort before anything runs
    phase_ = parse_phase(o.phase);
    device_ = o.device.find();
    recipe_ = resolve(o.recipe.finish(default_model(device_)), device_);
  }

  int run() {
    CompiledSession session = compile_phase(recipe_, device_, phase_);
    check_fits(session, o_.device.limit(device_) / recipe_.data_parallel);
    flops_per_token_ = executed_per_token(session);
    plan_alternatives(session);
    check_folder(o_.trace, "--trace");
    check_folder(o_.snapshot, "--snapshot");
    recorder_ = o_.store.open();
    Conditions before = read_conditions(device_);
    RunRecord record = new_record("profile", o_.store.name, recipe_, device_, o_.phase, before);
    recorder_.begin(record);
    recorder_.set_document(record, "plan", plan_document(session));
    Profile profile;
    try {
      profile = measured(std::move(session));
    } catch (const Error& e) {
      record.status = e.code() == Exit::interrupted    ? "interrupted"
                      : e.code() == Exit::does_not_fit ? "out_of_memory"
                                                       : "failed";
      record.error = e.what();
      recorder_.finish(record);
      throw;
    }
    profile.recipe = record.recipe;
    profile.device = record.device;
    profile.environment = record.environment;
    store(record, profile, before);
    print(profile);
    if (!o_.trace.empty()) write_chrome_trace(profile, o_.trace);
    if (!o_.snapshot.empty()) write_memory_snapshot(profile, o_.snapshot);
    return 0;
  }

 private:
  double executed_per_token(const CompiledSession& s) const {
    return phase_flops(s, phase_, FlopsConvention::executed) / double(phase_tokens(s.recipe, phase_));
  }

  void plan_alternatives(const CompiledSession& session) {
    auto compile = [&](const Recipe& r) {
      check_interrupt();
      return compile_phase(r, device_, phase_, {.verify = false});
    };
    alternatives_ = memory_alternatives(session, compile, [&](auto& s) { return executed_per_token(s); });
  }

  ProfilerOptions profiler_options(const CompiledSession& session) const {
    ProfilerOptions options;
    options.timers = o_.method == "timers";
    options.before_run = check_interrupt;
    options.note = say;
    options.rule.warmup = o_.warmup;
    options.rule.max_seconds = o_.max_seconds;
    if (o_.samples > 0) {
      options.rule.min_samples = options.rule.max_samples = o_.samples;
      options.rule.target_relative_ci = 0, options.rule.max_seconds = 1e9;
    }
    Profile rows;
    describe_session(rows, session, phase_calls(session, phase_));
    std::set<std::string> names = rates_needed(rows);
    say("measuring the limits that are not given by --rates ...");
    options.rates = device_rates(device_, names, given_rates_);
    return options;
  }

  Profile measured(CompiledSession session) const {
    ProfilerOptions options = profiler_options(session);
    say(fmt::format("profiling {} {}, {}, batch {}, seq {} ...", recipe_.model.name, o_.phase, recipe_.precision,
                    recipe_.batch, recipe_.seq_length()));
    reset_peak_resident();
    try {
      BenchCell cell(std::move(session), phase_, o_.seed);
      return run_profiler(cell, options);
    } catch (const std::bad_alloc&) {
      throw Error(Exit::does_not_fit, "the system refused the memory", "memory", "Use a smaller --batch.");
    }
  }

  void store(RunRecord& record, const Profile& p, const Conditions& before) {
    std::vector<SampleRow> samples;
    for (size_t i = 0; i < p.step_ms.size(); ++i) samples.push_back({p.step_ms[i], int(i), "", p.throttled[i] != 0});
    recorder_.add_samples(record, samples);
    recorder_.set_document(record, "profile", to_json(p));
    record.environment_after = environment_after_json(device_, before);
    record.status = "done";
    record.result = profile_result(p, device_.name);
    recorder_.finish(record);
  }

  void print(const Profile& p) const {
    if (o_.json) return print_json(profile_document(p, alternatives_, flops_per_token_));
    ProfileView view = o_.view;
    view.top = size_t(o_.top);
    view.color = use_color(STDOUT_FILENO);
    view.width = terminal_width(STDOUT_FILENO);
    fmt::print("{}\n{}\n{}\n{}\n{}\n{}", profile_head(p), profile_times(p, view), profile_table(p, view),
               profile_facts(p), profile_memory(p, view),
               profile_alternatives(p, alternatives_, flops_per_token_, view));
  }

  const Options& o_;
  std::vector<ProfileRate> given_rates_;
  BenchPhase phase_ = BenchPhase::step;
  Device device_;
  Recipe recipe_;
  std::vector<Alternative> alternatives_;
  double flops_per_token_ = 0;
  Recorder recorder_;
};

void validate(const Options& o) {
  auto in = [](int64_t value, int64_t low, int64_t high, const char* flag) {
    if (value < low || value > high)
      fail_usage(fmt::format("{} {}", flag, value), flag, fmt::format("It must be from {} to {}.", low, high));
  };
  in(o.samples, 0, 10'000, "--samples");
  in(o.warmup, 0, 1'000'000, "--warmup");
  in(o.top, 1, 100'000, "--top");
  if (!(o.max_seconds >= 0)) fail_usage("a time limit must be positive", "--max-seconds");
  if (o.method != "auto" && o.method != "timers")
    fail_usage(fmt::format("'{}' is not a value of --method", printable(o.method)), "--method",
               did_you_mean(o.method, {"auto", "timers"}) + " Values: auto, timers.");
}

}  // namespace

std::function<int()> setup_profile(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto option = [&](const char* group, const char* flag, auto& value, const char* help) {
    app.add_option(flag, value, help)->capture_default_str()->group(group);
  };
  option("Measurement", "--phase", o->phase, "forward (inference), backward (forward and backward) or step");
  app.add_option("--samples", o->samples,
                 "runs to measure, and as many profiled ones between them; default: until the median is known to 1%, "
                 "at least 6, at most 50")
      ->group("Measurement");
  option("Measurement", "--warmup", o->warmup, "runs thrown away first");
  option("Measurement", "--max-seconds", o->max_seconds, "time without --samples (6 runs are always made)");
  option("Measurement", "--seed", o->seed, "of weights and tokens");
  app.add_option("--rates", o->rates,
                 "limits for the floors, e.g. bf16=9.9e14,bandwidth=4.8e12 (FLOP/s, B/s); default: measured")
      ->group("Measurement");
  option("Measurement", "--method", o->method, "auto (the device's own records where it has them) or timers");
  option("Output", "--by", o->view.by, "rows of the table: place, instruction, kernel, class, layer or phase");
  option("Output", "--sort", o->view.sort, "their order: time, gap (time above the floor), flops or bytes");
  option("Output", "--top", o->top, "how many of them");
  app.add_flag("--layers", o->view.layers, "a row a layer")->group("Output");
  app.add_option("--trace", o->trace, "write the step as a Chrome trace (Perfetto)")->group("Output");
  app.add_option("--snapshot", o->snapshot, "write its memory as a PyTorch memory snapshot")->group("Output");
  add_json_option(app, o->json);
  add_record_options(app, o->store);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] {
    validate(*o);
    StopSignal signal;
    return ProfileCommand(*o).run();
  };
}

}  // namespace crest
