// crest compare: why two runs differ.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/overlay_flags.h"
#include "cli/store_options.h"
#include "compare/compare.h"
#include "compare/compare_text.h"
#include "compare/measure_pair.h"
#include "compare/open_compared.h"
#include "core/error.h"
#include "core/text.h"
#include "host/stop_signal.h"
#include "stats/ab.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct CompareFlags {
  CompareMeasureOptions measure;  // everything but the two sides
  MeasurementOptions base;        // the common start of both sides
  std::string a, b;               // flags on top of it
  std::vector<std::string> names;
  std::string by = "group";
  int top = 10;
  bool per_token = false, json = false, a_given = false, b_given = false;
};

GroupBy parse_by(const std::string& text) {
  if (text == "group") return GroupBy::scope;
  if (text == "class") return GroupBy::op_class;
  if (text == "layer") return GroupBy::layer;
  fail_usage(fmt::format("'{}' is not a value of --by", printable(text)), "--by",
             did_you_mean(text, {"group", "class", "layer"}) + " Values: group, class, layer.");
}

void check(const CompareFlags& o) {
  bool flags = o.a_given || o.b_given;
  if (flags && !o.names.empty())
    fail_usage("both runs and recipes were given", "crest compare",
               "Name two runs (crest compare A B) or two recipes (--a 'FLAGS' --b 'FLAGS').");
  if (!flags && o.names.size() != 2)
    fail_usage(fmt::format("{} run{} named", o.names.size(), o.names.size() == 1 ? " is" : "s are"), "crest compare",
               "Name two runs: crest compare A B. crest runs list shows them. Files work too.");
  auto in = [](int64_t value, int64_t low, int64_t high, const char* flag) {
    if (value < low || value > high)
      fail_usage(fmt::format("{} {}", flag, value), flag, fmt::format("It must be from {} to {}.", low, high));
  };
  parse_phase(o.measure.phase);
  in(o.top, 1, 100'000, "--top");
  in(o.measure.samples, 0, 10'000, "--samples");
  in(o.measure.warmup, 0, 1'000'000, "--warmup");
  check_rounds(o.measure.samples);
  if (!(o.measure.max_seconds >= 0)) fail_usage("the time limit is negative", "--max-seconds");
}

// The common measurement of both sides, with the flags of `which` (--a or --b).
MeasurementOptions side_options(MeasurementOptions measurement, const std::string& flags, const char* which) {
  try {
    if (flags.find_first_not_of(' ') != std::string::npos) overlay_flags(flags, measurement);
  } catch (const Error& e) {
    fail_usage(e.problem(), which, fmt::format("Give it recipe flags, for example {} '--fusion off'.", which));
  }
  return measurement;
}

RunComparison compared(const CompareFlags& o, CompareOptions options) {
  if (o.names.empty()) {
    StopSignal signal(StopSignal::measuring_grace);
    CompareMeasureOptions measure = o.measure;
    measure.a = side_options(o.base, o.a, "--a"), measure.b = side_options(o.base, o.b, "--b");
    MeasuredPair pair = measure_pair(measure);
    options.noise_floor = pair.noise_floor;
    options.paired = true;
    return compare_runs(pair.a, pair.b, options);
  }
  const StoreFile& file = o.measure.store;
  RunRecord a = open_compared(o.names[0], file), b = open_compared(o.names[1], file);
  options.noise_floor = known_noise_floor(a, b, file);
  return compare_runs(a, b, options);
}

int run_compare(const CompareFlags& o) {
  CompareOptions options;
  options.by = parse_by(o.by);
  options.per_token = o.per_token;
  check(o);
  RunComparison comparison = compared(o, options);
  if (o.json) {
    print_json(to_json(comparison));
    return 0;
  }
  CompareTextOptions text;
  text.top = o.top;
  text.width = terminal_width(STDOUT_FILENO);
  text.color = use_color(STDOUT_FILENO);
  fmt::print("{}", compare_text(comparison, text));
  return 0;
}

}  // namespace

std::function<int()> setup_compare(CLI::App& app) {
  auto o = std::make_shared<CompareFlags>();
  app.add_option("RUN", o->names,
                 "two runs: id, uid, name or folder in the run database; or files: an export (FILE#RUN), output of "
                 "crest profile --json, a PyTorch profiler trace, a training log");
  app.add_option("--by", o->by, "rows of the comparison: group (model scopes), class or layer")
      ->capture_default_str()
      ->group("Output");
  app.add_option("--top", o->top, "rows per table")->capture_default_str()->group("Output");
  app.add_flag("--per-token", o->per_token,
               "explain time per token (always on when the steps differ in their number of tokens)")
      ->group("Output");
  const char* measurement = "Measure two recipes now";
  auto* a = app.add_option("--a", o->a, "flags for A only (recipe, device, libraries), on top of the common ones")
                ->type_name("FLAGS")
                ->group(measurement);
  auto* b = app.add_option("--b", o->b, "flags for B only")->type_name("FLAGS")->group(measurement);
  app.add_option("--phase", o->measure.phase, "forward, forward-saved, backward, step or decode")
      ->capture_default_str()
      ->group(measurement);
  app.add_option("--samples", o->measure.samples, "interleaved rounds; default: until the ratio is known to 1%")
      ->group(measurement);
  app.add_option("--warmup", o->measure.warmup, "warm-up rounds, not measured")
      ->capture_default_str()
      ->group(measurement);
  app.add_option("--max-seconds", o->measure.max_seconds, "time limit without --samples; a verdict needs 4 rounds")
      ->capture_default_str()
      ->group(measurement);
  app.add_option("--seed", o->measure.seed, "seed for weights and tokens")->capture_default_str()->group(measurement);
  app.add_option("--rates", o->measure.rates, "rates to compute floors from, e.g. bf16=9.9e14,bandwidth=4.8e12")
      ->type_name("LIST")
      ->group(measurement);
  add_json_option(app, o->json);
  add_record_options(app, o->measure.store);
  add_recipe_options(app, o->base.recipe);
  add_device_options(app, o->base.device);
  add_config_option(app);
  return [o, a, b] {
    o->a_given = a->count() > 0, o->b_given = b->count() > 0;
    return run_compare(*o);
  };
}

}  // namespace crest
