#include "cli/bench_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

using List = std::vector<std::string>;

// "4,8" and repeated flags as one list; an empty entry is an error.
List values_of(const List& given, const char* flag, const std::string& otherwise) {
  if (given.empty()) return {otherwise};
  List values;
  for (auto& text : given)
    for (auto& v : split(text, ',')) {
      if (v.empty())
        fail_usage(fmt::format("'{}' has an empty value", printable(text)), flag, "Write for example 4,8.");
      values.push_back(v);
    }
  if (values.empty()) fail_usage("an empty list", flag, "Write for example 4,8.");
  return values;
}

int64_t whole_number(const std::string& text, const char* flag) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    fail_usage(fmt::format("'{}' is not a whole number of sequences or tokens", printable(text)), flag,
               "Write for example 8, or 4,8 for a grid.");
  return value;
}

// The words of a command line as a shell splits them; quotes keep blanks.
List shell_words(const std::string& text) {
  List words;
  std::optional<std::string> word;
  char quote = 0;
  for (char c : text) {
    if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? 0 : c;
      if (!word) word = "";
    } else if (!quote && std::isspace(static_cast<unsigned char>(c))) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote) fail_usage("a quotation mark is not closed", "--ab", "Quote the whole list of flags once.");
  if (word) words.push_back(*word);
  if (words.empty()) fail_usage("no flags were given", "--ab", "For example --ab '--fusion off'.");
  return words;
}

}  // namespace

std::vector<RecipeOptions> cells_of(const BenchOptions& o) {
  const Recipe& base = o.recipe.recipe;
  std::vector<RecipeOptions> cells = {o.recipe};
  auto multiply = [&](const List& given, const char* flag, const std::string& otherwise, auto set) {
    std::vector<RecipeOptions> more;
    for (auto& cell : cells)
      for (auto& v : values_of(given, flag, otherwise)) {
        more.push_back(cell);
        set(more.back().recipe, v);
      }
    if (more.size() > 10000) fail_usage("the grid has more than 10000 cells", flag);
    cells = std::move(more);
  };
  multiply(o.precision, "--precision", base.precision, [](Recipe& r, auto& v) { r.precision = v; });
  multiply(o.attention, "--attention", base.attention, [](Recipe& r, auto& v) { r.attention = v; });
  multiply(o.fusion, "--fusion", base.fusion, [](Recipe& r, auto& v) { r.fusion = v; });
  multiply(o.recompute, "--recompute", base.recompute, [](Recipe& r, auto& v) { r.recompute = v; });
  multiply(o.batch, "--batch", std::to_string(base.batch),
           [](Recipe& r, auto& v) { r.batch = whole_number(v, "--batch"); });
  multiply(o.seq, "--seq", std::to_string(base.seq), [](Recipe& r, auto& v) { r.seq = whole_number(v, "--seq"); });
  return cells;
}

std::vector<BenchPhase> phases_of(const std::string& text) {
  if (text == "all") return {BenchPhase::forward, BenchPhase::backward, BenchPhase::step};
  for (BenchPhase p : {BenchPhase::forward, BenchPhase::backward, BenchPhase::step})
    if (text == name(p)) return {p};
  fail_usage(fmt::format("'{}' is not a value of --phase", printable(text)), "--phase",
             did_you_mean(text, {"forward", "backward", "step", "all"}) + " Values: forward, backward, step, all.");
}

void overlay_flags(const std::string& flags, RecipeOptions& recipe, DeviceOptions& device) {
  List words = shell_words(flags);
  std::vector<const char*> argv;
  for (auto& w : words) argv.push_back(w.c_str());
  CLI::App app{"second recipe", "bench --ab"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_recipe_options(app, recipe);
  add_device_options(app, device);
  try {
    parse_command_line(app, int(argv.size()), argv.data());
  } catch (const CLI::ParseError& e) {
    fail_usage(e.what(), "--ab", "The text holds recipe flags, for example --ab '--fusion off'.");
  }
}

void validate(const BenchOptions& o) {
  if (o.samples < 0 || o.samples > 1'000'000)
    fail_usage(fmt::format("--samples {}", o.samples), "--samples",
               "It must be from 1 to 1000000; 0: the stopping rule.");
  if (o.warmup < 0 || o.warmup > 1'000'000)
    fail_usage(fmt::format("--warmup {}", o.warmup), "--warmup", "It must be from 0 to 1000000.");
  if (!(o.max_seconds >= 0) || !(o.timeout > 0))
    fail_usage("a time limit must be positive", "--max-seconds, --timeout");
  if (o.peak < 0 || !std::isfinite(o.peak))
    fail_usage(fmt::format("--peak {}", o.peak), "--peak", "FLOP/s, e.g. 2.5e11.");
}

void add_bench_options(CLI::App& app, BenchOptions& o) {
  auto not_empty = [](const std::string& text) { return text.empty() ? std::string("the text is empty") : ""; };
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Measurement");
  };
  option("--phase", o.phase, "forward, backward (forward and backward), step or all");
  app.add_option("--samples", o.samples,
                 "runs (rounds of a comparison) to measure; default: until the median is "
                 "known to 1%")
      ->group("Measurement");
  option("--warmup", o.warmup, "runs thrown away first");
  option("--max-seconds", o.max_seconds, "time for a cell without --samples (6 runs are always made)");
  app.add_option("--ab", o.ab, "compare with a second recipe: 'FLAGS' over these, interleaved")
      ->group("Measurement")
      ->check(not_empty);
  app.add_option("--peer", o.peer, "compare with 'COMMAND' that prints a JSON line with step_ms_median or ms")
      ->group("Measurement")
      ->check(not_empty);
  app.add_flag("--noise", o.noise, "compare with itself: what can be told apart on this machine")->group("Measurement");
  option("--timeout", o.timeout, "seconds that a run of the peer may take");
  option("--seed", o.seed, "of weights and tokens");
  option("--flops-convention", o.convention, "palm (6N + 12 L d T per token) or executed (sum over instructions)");
  app.add_option("--peak", o.peak, "FLOP/s that MFU is taken against (default: measured, takes about a second)")
      ->group("Measurement");
  app.add_flag("--no-mfu", o.no_mfu, "do not measure the peak; no MFU")->group("Measurement");
  add_json_option(app, o.json);
  add_recipe_options(app, o.recipe);
  // Levers and sizes that take lists here.
  auto grid = [&](const char* flag, List& values) {
    std::string help = app.get_option(flag)->get_description() + "; a list (A,B) makes a grid";
    std::string otherwise = app.get_option(flag)->get_default_str();
    app.remove_option(app.get_option(flag));
    app.add_option(flag, values, help)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->default_str(otherwise)
        ->group("Recipe");
  };
  grid("--batch", o.batch);
  grid("--seq", o.seq);
  grid("--precision", o.precision);
  grid("--attention", o.attention);
  grid("--fusion", o.fusion);
  grid("--recompute", o.recompute);
  add_device_options(app, o.device);
  add_config_option(app);
}

}  // namespace crest
