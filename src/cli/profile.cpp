// crest profile: where the time and the memory of a step go, by instruction, kernel, class, layer and phase.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/libraries.h"
#include "cli/options.h"
#include "cli/recipe_json.h"
#include "core/error.h"
#include "core/text.h"
#include "measure/environment.h"
#include "measure/memory.h"
#include "measure/profile_facts.h"
#include "measure/profile_rates.h"
#include "measure/profile_rows.h"
#include "measure/profiler.h"
#include "report/profile_text.h"
#include "report/table.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string phase = "step", rates, method = "auto";
  int samples = 0, warmup = 3;
  double max_seconds = 10;
  uint64_t seed = 1337;
  int top = 15;
  ProfileView view;
  bool json = false;
};

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest profile");
}

void say(const std::string& line) { fmt::print(stderr, "{}\n", printable(line, 400)); }

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
    ProfilerOptions options = profiler_options(session);
    double flops_per_token = executed_per_token(session);
    std::vector<Alternative> alternatives = memory_alternatives(
        session,
        [&](const Recipe& r) {
          check_interrupt();
          return compile_phase(r, device_, phase_, {.verify = false});
        },
        [&](const CompiledSession& s) { return executed_per_token(s); });
    reset_peak_resident();
    say(fmt::format("profiling {} {}, {}, batch {}, seq {} ...", recipe_.model.name, o_.phase, recipe_.precision,
                    recipe_.batch, recipe_.seq_length()));
    Profile profile = measured(std::move(session), options);
    profile.recipe = recipe_to_json(recipe_);
    profile.device = device_to_json(device_);
    profile.environment = Json::parse(to_json(read_environment(library_versions())));
    if (o_.json)
      print_json(document(profile, alternatives, flops_per_token));
    else
      print(profile, alternatives, flops_per_token);
    return 0;
  }

 private:
  static BenchPhase parse_phase(const std::string& text) {
    for (BenchPhase p : {BenchPhase::forward, BenchPhase::backward, BenchPhase::step})
      if (text == name(p)) return p;
    fail_usage(fmt::format("'{}' is not a value of --phase", printable(text)), "--phase",
               did_you_mean(text, {"forward", "backward", "step"}) + " Values: forward, backward, step.");
  }

  double executed_per_token(const CompiledSession& s) const {
    return phase_flops(s, phase_, FlopsConvention::executed) / double(phase_tokens(s.recipe, phase_));
  }

  ProfilerOptions profiler_options(const CompiledSession& session) {
    ProfilerOptions options;
    options.timers = o_.method == "timers";
    options.before_run = check_interrupt;
    options.rule.warmup = o_.warmup;
    options.rule.max_seconds = o_.max_seconds;
    if (o_.samples > 0) {
      options.rule.min_samples = options.rule.max_samples = o_.samples;
      options.rule.target_relative_ci = 0, options.rule.max_seconds = 1e9;
    }
    Profile rows;
    describe_session(rows, session, phase_calls(session, phase_));
    std::set<std::string> names = rates_needed(rows);
    if (given_rates_.size() < names.size()) say("measuring this device's limits ...");
    options.rates = device_rates(device_, names, given_rates_);
    return options;
  }

  Profile measured(CompiledSession session, const ProfilerOptions& options) {
    try {
      BenchCell cell(std::move(session), phase_, o_.seed);
      return run_profiler(cell, options);
    } catch (const std::bad_alloc&) {
      throw Error(Exit::does_not_fit, "the system refused the memory", "memory", "Use a smaller --batch.");
    }
  }

  static Json shares_json(const std::vector<ProfileShare>& shares) {
    Json list = Json::array();
    for (auto& s : shares)
      list.push_back({{"key", s.key},
                      {"instructions", s.instructions},
                      {"launches", s.launches},
                      {"ms", s.ms},
                      {"floor_ms", s.floor_ms},
                      {"flops", s.flops},
                      {"bytes", s.bytes}});
    return list;
  }

  static Json peak_json(const Profile& p) {
    MemoryPoint peak = memory_peak(p);
    Json holders = Json::array();
    for (auto& h : memory_holders(p, peak))
      holders.push_back({{"category", h.category}, {"phase", h.phase}, {"layer", h.layer}, {"bytes", h.bytes}});
    return {{"bytes", total(peak.bytes)},
            {"call", peak.call},
            {"index", peak.index},
            {"instr", peak.instr},
            {"by_category", categories_to_json(peak.bytes)},
            {"holders", holders}};
  }

  static Json document(const Profile& p, const std::vector<Alternative>& alternatives, double flops_per_token) {
    Json json = to_json(p);
    json["step_ms_median"] = p.step_median_ms();
    json["profiled_ms_median"] = p.profiled_median_ms();
    json["overhead"] = p.overhead();
    json["closure"] = p.closure();
    json["facts"] = to_json(facts_of(p));
    json["by_phase"] = shares_json(by_phase(p));
    json["by_class"] = shares_json(by_class(p));
    json["by_layer"] = shares_json(by_layer(p));
    json["by_place"] = shares_json(by_place(p));
    json["by_kernel"] = shares_json(by_kernel(p));
    json["memory_peak"] = peak_json(p);
    json["alternatives"] = Json::array();
    for (auto& a : alternatives)
      json["alternatives"].push_back({{"flags", a.flags},
                                      {"planned_bytes", a.planned_bytes},
                                      {"saved_bytes", p.memory.planned_bytes - a.planned_bytes},
                                      {"flops_ratio", a.flops_per_token / flops_per_token}});
    return json;
  }

  void print(const Profile& p, const std::vector<Alternative>& alternatives, double flops_per_token) const {
    ProfileView view = o_.view;
    view.top = size_t(o_.top);
    view.color = use_color(STDOUT_FILENO);
    view.width = terminal_width(STDOUT_FILENO);
    fmt::print("{}\n{}\n{}\n{}\n{}\n{}", profile_head(p), profile_times(p, view), profile_table(p, view),
               profile_facts(p), profile_memory(p, view), profile_alternatives(p, alternatives, flops_per_token, view));
  }

  const Options& o_;
  std::vector<ProfileRate> given_rates_;
  BenchPhase phase_ = BenchPhase::step;
  Device device_;
  Recipe recipe_;
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
  auto option = [&](const char* flag, auto& value, const char* help, const char* group) {
    app.add_option(flag, value, help)->capture_default_str()->group(group);
  };
  option("--phase", o->phase, "forward (inference), backward (forward and backward) or step", "Measurement");
  app.add_option(
         "--samples", o->samples,
         "runs to measure, and as many profiled ones between them; default: until the median is known to 1%, at "
         "least 6, at most 50")
      ->group("Measurement");
  option("--warmup", o->warmup, "runs thrown away first", "Measurement");
  option("--max-seconds", o->max_seconds, "time without --samples (6 runs are always made)", "Measurement");
  option("--seed", o->seed, "of weights and tokens", "Measurement");
  app.add_option("--rates", o->rates,
                 "limits for the floors, e.g. bf16=9.9e14,bandwidth=4.8e12 (FLOP/s, B/s; default: measured)")
      ->group("Measurement");
  option("--method", o->method, "auto (the device's own records where it has them) or timers", "Measurement");
  option("--by", o->view.by, "rows of the table: place, instruction, kernel, class, layer or phase", "Output");
  option("--sort", o->view.sort, "their order: time, gap (time above the floor), flops or bytes", "Output");
  option("--top", o->top, "how many of them", "Output");
  app.add_flag("--layers", o->view.layers, "a row a layer")->group("Output");
  add_json_option(app, o->json);
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
