#include "cli/overlay_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

using List = std::vector<std::string>;

// Splits a command line into words as a shell does; quotes keep spaces.
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
  if (quote) fail_usage("a quote is not closed", "--ab", "Put the whole list of flags in one pair of quotes.");
  if (word) words.push_back(*word);
  if (words.empty()) fail_usage("no flags given", "--ab", "For example --ab '--fusion off'.");
  return words;
}

}  // namespace

void overlay_flags(const std::string& flags, MeasurementOptions& measurement) {
  List words = shell_words(flags);
  std::vector<const char*> argv;
  for (auto& w : words) argv.push_back(w.c_str());
  CLI::App app{"second recipe", "crest bench"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_recipe_options(app, measurement.recipe);
  add_device_options(app, measurement.device);
  add_config_option(app);
  try {
    parse_command_line(app, int(argv.size()), argv.data());
  } catch (const CLI::ParseError& e) {
    fail_usage(e.what(), "--ab", "Give it recipe flags, for example --ab '--fusion off'.");
  }
  for (auto& row : recipe_settings())
    for (auto& text : measurement.recipe.given[row.name]) parse_setting(row, text, std::string("--ab, ") + row.flag());
}

}  // namespace crest
