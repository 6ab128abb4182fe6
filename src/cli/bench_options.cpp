#include "cli/bench_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

using List = std::vector<std::string>;

constexpr size_t most_cells = 10000;

// "4,8" and repeated flags as one list; an empty entry is an error.
List values_of(const List& given, const std::string& flag) {
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

// Flags of one cell, read by the same options as those of the other commands.
class CellParser {
 public:
  explicit CellParser(const CellOptions& base) : cell_(base) {
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_recipe_options(app_, cell_.recipe);
    add_device_options(app_, cell_.device);
  }
  // Every call must give the same flags: what an earlier one set stays.
  const CellOptions& parse(List arguments) {
    std::reverse(arguments.begin(), arguments.end());
    app_.parse(arguments);
    return cell_;
  }

 private:
  CellOptions cell_;
  CLI::App app_;
};

struct GridList {
  std::string flag;
  List values;
};

// The lists that were given, outermost first.
std::vector<GridList> grid_lists(const BenchOptions& o) {
  std::vector<GridList> lists;
  for (auto& [flag, given] : o.lists)
    if (!given.empty()) lists.push_back({flag, values_of(given, flag)});
  auto inner = [](const GridList& l) { return l.flag == "--seq" ? 2 : l.flag == "--batch" ? 1 : 0; };
  std::stable_sort(lists.begin(), lists.end(), [&](auto& a, auto& b) { return inner(a) < inner(b); });
  return lists;
}

void check_value(CellParser& parser, const std::string& flag, const std::string& value) {
  try {
    parser.parse({flag + "=" + value});
  } catch (const CLI::ParseError&) {
    fail_usage(fmt::format("'{}' is not a value of {}", printable(value), flag), flag,
               "Write one value, or a list such as A,B for a grid. See crest bench --help.");
  }
}

}  // namespace

std::vector<CellOptions> cells_of(const BenchOptions& o) {
  std::vector<GridList> lists = grid_lists(o);
  CellParser checker(o.base);
  for (auto& l : lists)
    for (auto& v : l.values) check_value(checker, l.flag, v);
  size_t count = 1;
  for (auto& l : lists)
    if ((count *= l.values.size()) > most_cells)
      fail_usage(fmt::format("the grid has more than {} cells", most_cells), l.flag, "Measure it in parts.");
  CellParser parser(o.base);
  std::vector<CellOptions> cells;
  for (size_t cell = 0; cell < count; ++cell) {
    List arguments, label;
    size_t inner = count;  // cells between two changes of a list's value
    for (auto& l : lists) {
      inner /= l.values.size();
      const std::string& value = l.values[cell / inner % l.values.size()];
      arguments.push_back(l.flag + "=" + value);
      if (l.values.size() > 1) label.push_back(l.flag.substr(2) + " " + value);
    }
    cells.push_back(parser.parse(arguments));
    cells.back().label = join(label, ", ");
  }
  return cells;
}

std::vector<BenchPhase> phases_of(const std::string& text) {
  if (text == "all") return {BenchPhase::forward, BenchPhase::backward, BenchPhase::step};
  for (BenchPhase p : {BenchPhase::forward, BenchPhase::backward, BenchPhase::step})
    if (text == name(p)) return {p};
  fail_usage(fmt::format("'{}' is not a value of --phase", printable(text)), "--phase",
             did_you_mean(text, {"forward", "backward", "step", "all"}) + " Values: forward, backward, step, all.");
}

void overlay_flags(const std::string& flags, CellOptions& cell) {
  List words = shell_words(flags);
  std::vector<const char*> argv;
  for (auto& w : words) argv.push_back(w.c_str());
  CLI::App app{"second recipe", "bench --ab"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_recipe_options(app, cell.recipe);
  add_device_options(app, cell.device);
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
  if (o.resume && (o.store.off || o.compares()))
    fail_usage("only a grid that was recorded can be continued", "--resume",
               "Leave --no-store, --ab, --peer and --noise out.");
}

// Recipe flags with one value, and --threads, become lists with the same help.
static void make_lists(CLI::App& app, BenchOptions& o) {
  std::vector<CLI::Option*> single;
  for (CLI::Option* option : app.get_options())
    if ((option->get_group() == "Recipe" || option->check_lname("threads")) && option->get_items_expected_max() > 0 &&
        option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll)
      single.push_back(option);
  for (CLI::Option* option : single) {
    std::string flag = "--" + option->get_lnames().at(0), help = option->get_description();
    std::string otherwise = option->get_default_str(), group = option->get_group();
    app.remove_option(option);
    o.lists.emplace_back(flag, List());
    app.add_option(flag, o.lists.back().second, help)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->default_str(otherwise)
        ->group(group);
  }
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
  app.add_flag("--flush-cache", o.flush_cache, "empty the caches before every run")->group("Measurement");
  option("--flops-convention", o.convention, "palm (6N + 12 L d T per token) or executed (sum over instructions)");
  app.add_option("--peak", o.peak, "FLOP/s that MFU is taken against (default: measured, takes about a second)")
      ->group("Measurement");
  app.add_flag("--no-mfu", o.no_mfu, "do not measure the peak; no MFU")->group("Measurement");
  const char* grid = "Grid (a list A,B of a recipe flag, or of --threads, makes one)";
  app.add_flag("--resume", o.resume, "continue the newest grid of the same cells: measure only what it lacks")
      ->group(grid);
  app.add_flag("--yes", o.yes, "measure grids that take long without asking")->group(grid);
  add_json_option(app, o.json);
  add_record_options(app, o.store);
  add_recipe_options(app, o.base.recipe);
  add_device_options(app, o.base.device);
  make_lists(app, o);
  add_config_option(app);
}

}  // namespace crest
