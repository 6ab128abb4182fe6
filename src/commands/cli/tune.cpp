// crest tune: searches the fastest settings of a training step.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/comm_options.h"
#include "cli/command.h"
#include "cli/options.h"
#include "comm/environment.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "device/rank_device.h"
#include "host/stop_signal.h"
#include "passes/recompute.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"
#include "tune/mesh_search.h"
#include "tune/tune.h"

namespace crest {

namespace {

struct TuneFlags {
  TuneOptions tune;
  DeviceOptions device;
  std::string calibration, headroom;
  double within = 0, stop_below = 1;
  std::optional<double> search_seconds;
  bool longest_context = false;
  std::vector<const CLI::Option*> measurement;  // options foreign to a search of the longest context
  std::vector<const CLI::Option*> measuring;    // options of a measuring search only
  int top = 15;
  bool json = false;
};

void validate_tune(const TuneFlags& o) {
  auto in = [](double value, double low, double high, const char* flag) {
    if (!(value >= low && value <= high))
      fail_usage(fmt::format("{} {}", flag, value), flag, fmt::format("It must be from {} to {}.", low, high));
  };
  in(o.within, 0, 100, "--within");
  in(o.stop_below, 0, 100, "--stop-below");
  for (const char* given : {"seq", "context", "grad-accumulation"})
    if (o.longest_context && o.tune.recipe.has(given))
      fail_usage("the search for the longest context takes one micro batch and one sequence length",
                 fmt::format("--{}", given), "Omit it, or omit --longest-context.");
  for (const CLI::Option* given : o.measurement)
    if (o.longest_context && given->count() > 0)
      fail_usage("the longest context is planned, not measured", given->get_name(),
                 "Omit it, or omit --longest-context.");
  in(double(o.tune.global_batch), 0, 1 << 20, "--global-batch");
  in(o.tune.measure, 0, 1000, "--measure");
  if (o.tune.measure == 1)
    fail_usage("--measure 1", "--measure", "It must be 0, or at least 2: the start is one of them.");
  in(o.top, 1, 10'000, "--top");
  in(o.tune.max_seconds, 0, 3600, "--max-seconds");
  in(o.search_seconds.value_or(0), 0, 1e6, "--search-seconds");
  if (o.tune.global_batch > 0 && (o.tune.recipe.has("batch") || o.tune.recipe.has("grad-accumulation")))
    fail_usage("a global batch is divided by the search", "--batch, --grad-accumulation",
               "Omit them, or omit --global-batch.");
}

// --ranks 1,2,4 is --ranks 1 --vary ranks=1,2,4; with a global batch too large for one rank, the
// search starts with the first number that can share it.
void take_list_of_ranks(TuneOptions& o) {
  std::string& given = o.recipe.given["ranks"].back();
  if (given.find(',') == std::string::npos) return;
  std::vector<int> list = parse_ranks(given, "--ranks", 1);
  auto shares = [&](int n) { return o.global_batch % n == 0; };
  auto first = std::find_if(list.begin(), list.end(), shares);
  given = std::to_string(first == list.end() ? list[0] : *first);
  if (list.size() == 1) return;
  std::vector<std::string> numbers;
  for (int n : list) numbers.push_back(std::to_string(n));
  o.vary.push_back("ranks=" + join(numbers, ","));
}

// Of --ranks and --vary ranks=.
int most_ranks(const TuneOptions& o, int given) {
  for (auto& text : o.vary)
    if (const std::string name = "ranks="; text.starts_with(name))
      for (auto& value : split(text.substr(name.size()), ',')) given = std::max(given, std::atoi(value.c_str()));
  return given;
}

// Ranks are measuring processes.
void check_can_start(const TuneFlags& o, int ranks) {
  if (auto environment = rank_environment(); environment && environment->size > 1)
    fail_usage(fmt::format("it starts its ranks by itself, and {} started this one", environment->launcher), "--ranks",
               "Run crest tune without a launcher.");
  check_devices_of_ranks(o.device.device, std::max(2, ranks));
}

int run_tune(TuneFlags& o) {
  validate_tune(o);
  if (o.tune.recipe.has("ranks")) take_list_of_ranks(o.tune);
  StopSignal signal(StopSignal::measuring_grace);
  Device device = o.device.find();
  for (const CLI::Option* given : o.measuring)
    if (device.described && given->count() > 0)
      fail_usage("a device that this machine does not have is predicted, not measured", given->get_name(), "Omit it.");
  auto budget = [](const std::string& value, const char* flag) {
    if (!recompute_budget(value).empty())
      fail_usage("a search has its own limit of memory", flag, "Use --memory-limit.");
  };
  if (o.tune.recipe.has("recompute")) budget(o.tune.recipe.given["recompute"].back(), "--recompute");
  for (auto& text : o.tune.vary)
    if (const std::string name = "recompute="; text.starts_with(name))
      for (auto& value : split(text.substr(name.size()), ',')) budget(value, "--vary");
  int64_t limit = o.device.limit(device) - (o.headroom.empty() ? 0 : parse_bytes(o.headroom, "--headroom"));
  if (limit <= 0)
    throw Error(Exit::does_not_fit,
                fmt::format("it leaves nothing of {}", format_bytes(double(o.device.limit(device)))), "--headroom",
                "Leave less free.");
  const int ranks = o.tune.recipe.finish(default_model(device)).ranks;
  const bool several = ranks > 1 || std::any_of(o.tune.vary.begin(), o.tune.vary.end(),
                                                [](auto& text) { return text.starts_with("ranks="); });
  if (several && !device.described && !o.longest_context) check_can_start(o, most_ranks(o.tune, ranks));
  if (device.kind == "cpu") device = with_threads(device, std::max(1, device.threads / ranks));
  std::optional<Calibration> calibration = find_calibration(o.calibration, device);
  o.tune.sheet = sheet_of(device, o.device.device);
  o.tune.process_flags = o.device.flags();
  o.tune.within = o.within / 100, o.tune.stop_below = o.stop_below / 100;
  o.tune.search_seconds = o.search_seconds.value_or(device.kind == "cuda" ? 60 : 0);
  if (o.device.device != "auto" && !device.described) o.tune.device_flags.push_back("--device=" + o.device.device);
  if (o.device.threads > 0) o.tune.device_flags.push_back(fmt::format("--threads={}", o.device.threads));
  o.tune.check_interrupt = [] {
    if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest tune");
  };
  auto say = [](const std::string& line) { to_stderr("{}\n", line); };
  if (!o.longest_context && searches_meshes(o.tune, o.tune.recipe.finish(default_model(device)), device)) {
    const MeshSearchResult r = search_meshes(o.tune, device, limit, calibration ? &*calibration : nullptr, say);
    if (o.json)
      print_json(to_json(o.tune, r));
    else
      fmt::print("{}", text_of(o.tune, r, size_t(o.top), use_color(STDOUT_FILENO), output_width()));
    return 0;
  }
  if (o.longest_context) {
    LongestContext r = longest_context(o.tune, device, limit, calibration ? &*calibration : nullptr, say);
    if (o.json)
      print_json(to_json(o.tune, r));
    else
      fmt::print("{}", text_of(o.tune, r));
    return 0;
  }
  TuneResult r = tune(o.tune, device, limit, calibration ? &*calibration : nullptr, say);
  if (o.json)
    print_json(to_json(o.tune, r));
  else
    fmt::print("{}", text_of(o.tune, r, size_t(o.top), use_color(STDOUT_FILENO), output_width()));
  return 0;
}

}  // namespace

std::function<int()> setup_tune(CLI::App& app) {
  auto o = std::make_shared<TuneFlags>();
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Search");
  };
  app.add_option(
         "--vary", o->tune.vary,
         "also vary this setting: NAME (all its choices) or NAME=VALUE,VALUE; repeatable. Pinned kernels are "
         "OP=PATTERN, joined by +: kernel=attention=*.flash,attention=*.reference. The search always varies "
         "attention, recompute, loss-chunk, pad-vocab and the batch; precision fp8, if the GPU supports it; with "
         "--ranks N, how ranks share the work. A setting given as a flag does not vary; "
         "--global-batch keeps the product of batch, accumulation and ranks. --ranks 1,2,4 compares numbers of "
         "GPUs. For several nodes of GPUs that are not here, or with --vary mesh: meshes, pipeline schedules, "
         "shards, recompute and micro batches together, by prediction")
      ->type_name("SETTING")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Search");
  app.add_option("--global-batch", o->tune.global_batch,
                 "sequences per step, of all ranks together: the search divides them into micro batches (default: any "
                 "micro batch)")
      ->group("Search");
  option("--within", o->within,
         "percent of speed to give up for memory: choose the combination with the least memory among those at most X "
         "percent slower than the fastest");
  option("--stop-below", o->stop_below, "double the batch only while this gains at least X percent more tokens/s");
  app.add_flag("--longest-context", o->longest_context,
               "search for the longest context that fits instead of the fastest settings, by planning alone; batch 1 "
               "unless --batch is given")
      ->group("Search");
  app.add_option("--headroom", o->headroom, "memory to leave free, e.g. 5GB")->type_name("SIZE")->group("Search");
  app.add_option("--measure", o->tune.measure,
                 "most combinations to measure, plus up to 3 with --within (0: a tenth of them, from 6 to 24)")
      ->group("Search");
  option("--max-seconds", o->tune.max_seconds,
         "time limit of a combination's plain runs, and of its profiled ones (at least 1 of each)");
  app.add_option(
         "--search-seconds", o->search_seconds,
         "time limit of the search, its last comparison included; 0: none (default: 60 on a GPU, none on a CPU)")
      ->group("Search");
  option("--seed", o->tune.seed, "seed for weights and tokens");
  app.add_option(
         "--calibration", o->calibration,
         "predict with this file (default: the one crest calibrate wrote for this device, else Crest's own for this "
         "model of GPU)")
      ->type_name("FILE")
      ->group("Search");
  option("--top", o->top, "rows of the table");
  for (const char* flag : {"--global-batch", "--within", "--stop-below", "--measure", "--max-seconds",
                           "--search-seconds", "--seed", "--top"})
    o->measurement.push_back(app.get_option(flag));
  for (const char* flag : {"--measure", "--max-seconds", "--seed"}) o->measuring.push_back(app.get_option(flag));
  add_json_option(app, o->json);
  add_recipe_options(app, o->tune.recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] { return run_tune(*o); };
}

}  // namespace crest
