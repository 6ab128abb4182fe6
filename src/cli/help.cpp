// What --help and --help-all print, and the page of settings: all from the options and the tables of settings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "cli/command.h"
#include "cli/options.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "terminal/table.h"
#include "train/training_settings.h"

namespace crest {

namespace {

constexpr size_t width = 100, help_column = 30;

// A row of two columns: "  --batch N        sequences of ..".
std::string row(const std::string& left, const std::string& help, size_t column) {
  std::string line = "  " + left;
  if (line.size() + 2 > column)
    line += "\n" + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + wrapped(help, {.width = width, .indent = std::string(column, ' '), .taken = column}) + "\n";
}

std::string left_of(const CLI::Option& o) {
  if (o.get_positional()) return o.get_name(true);
  std::string text;
  for (auto& name : o.get_snames()) text += "-" + name + ", ";
  text += "--" + (o.get_lnames().empty() ? "" : o.get_lnames()[0]);
  if (o.get_items_expected_max() == 0) return text;
  std::string type = o.get_type_name().substr(0, o.get_type_name().find(':'));
  return text + " " + (type == "INT" || type == "UINT" ? "N" : type == "FLOAT" ? "X" : type);
}

std::string help_of(const CLI::Option& o) {
  std::string help = o.get_description(), otherwise = o.get_default_str();
  if (!otherwise.empty() && help.find("default") == std::string::npos) help += fmt::format(" (default {})", otherwise);
  return help;
}

// Rare: settings that are not among the common ones, and libraries of CUDA.
bool is_rare(const CLI::Option& o) {
  static const std::set<std::string> libraries = {"libraries", "cublaslt", "cudnn"};
  if (o.get_lnames().empty()) return false;
  const std::string& name = o.get_lnames()[0];
  if (libraries.count(name)) return true;
  for (auto& table : setting_tables())
    for (auto& setting : *table.rows)
      if (name == setting.name && o.get_group() == setting.group) return !setting.common;
  return false;
}

}  // namespace

std::string program_help() {
  std::string text =
      "Usage: crest COMMAND [OPTIONS]\n\nTrains GPT-style transformers and explains every millisecond and byte.\n";
  std::string group;
  for (auto& c : commands()) {
    if (group != c.group) text += fmt::format("\n{}\n", group = c.group);
    text += row(c.name, c.help, 15);
  }
  return text +
         "\ncrest COMMAND --help shows its common options, --help-all every one; crest help COMMAND does the same.\n"
         "crest help settings prints all settings; crest --version the versions of everything opened.\n";
}

std::string command_help(const Command& command, const CLI::App& app, bool all) {
  std::string usage = fmt::format("Usage: crest {}", command.name), positional;
  std::vector<std::string> groups;
  bool left_out = false;
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_positional())
      usage += fmt::format(" [{}]", o->get_name(true)), positional += row(left_of(*o), help_of(*o), help_column);
    const std::string& group = o->get_group();
    if (!o->get_positional() && !group.empty() && std::find(groups.begin(), groups.end(), group) == groups.end())
      groups.push_back(group);
  }
  std::string description = app.get_description();
  std::string text =
      fmt::format("{} [OPTIONS]\n\n{}\n", usage,
                  description.find('\n') == std::string::npos ? wrapped(description, {.width = width}) : description);
  if (!command.examples.empty()) text += "\nExamples\n";
  for (const char* example : command.examples) text += fmt::format("  {}\n", example);
  if (!positional.empty()) text += "\nArguments\n" + positional;
  // A command's own options before those that many commands share.
  auto shared = [](const std::string& group) {
    if (group == "Run database") return true;
    for (auto& table : setting_tables())
      for (auto& s : *table.rows)
        if (group == s.group) return true;
    return false;
  };
  std::stable_partition(groups.begin(), groups.end(), [&](auto& group) { return !shared(group); });
  for (auto& group : groups) {
    std::string rows;
    for (const CLI::Option* o : app.get_options()) {
      if (o->get_positional() || o->get_group() != group) continue;
      if (!all && is_rare(*o))
        left_out = true;
      else
        rows += row(left_of(*o), help_of(*o), help_column);
    }
    if (!rows.empty()) text += fmt::format("\n{}\n{}", group, rows);
  }
  if (left_out)
    text += fmt::format("\ncrest {} --help-all lists every option; docs/settings.md explains the settings.\n",
                        command.name);
  return text;
}

static std::string page_row(const Setting& s, const void* object, bool of_device) {
  std::string values = allowed(s);
  for (std::string prefix : {"Values: ", "It takes "})
    if (values.rfind(prefix, 0) == 0) values.erase(0, prefix.size());
  if (values.rfind("For ", 0) == 0) values[0] = 'f';
  if (!values.empty() && values.back() == '.') values.pop_back();
  std::string otherwise = *s.otherwise ? s.otherwise : text_of(s.get(s, object));
  const char* resume = of_device || s.resume == OnResume::accepts ? "accepts"
                       : s.resume == OnResume::notes              ? "notes"
                                                                  : "refuses";
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", s.flag(), s.help, values, otherwise, resume);
}

std::string settings_page() {
  std::string text =
      "# Settings\n\nEvery setting, from the tables that the program reads (`crest help settings` prints this\n"
      "page). A setting is a flag (`--grad-accumulation 4`), a key of a TOML file for `--config`\n"
      "(`grad_accumulation = 4`), a key in JSON and a column of `crest runs list --columns`. *On resume*:\n"
      "what `crest train --resume` does with another value than the run's.\n";
  for (auto& table : setting_tables()) {
    std::vector<std::string> groups;
    for (auto& s : *table.rows)
      if (std::find(groups.begin(), groups.end(), s.group) == groups.end()) groups.push_back(s.group);
    for (auto& group : groups) {
      text += fmt::format(
          "\n## {}\n\n| setting | what it does | values | default | on resume |\n|---|---|---|---|---|\n", group);
      for (auto& s : *table.rows)
        if (group == s.group) text += page_row(s, table.defaults, table.rows == &device_settings());
    }
  }
  return text;
}

}  // namespace crest
