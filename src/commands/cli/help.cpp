// Output of --help, --help-all and the page of settings. All of it comes from the options and the
// tables of settings.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "terminal/table.h"
#include "train/training_settings.h"

namespace crest {

namespace {

constexpr size_t help_column = 30;

// 100 columns, or the terminal's if it has fewer.
size_t help_width() { return isatty(STDOUT_FILENO) ? size_t(std::clamp(terminal_width(STDOUT_FILENO), 60, 100)) : 100; }

std::string sentence(const std::string& text) { return wrapped(text, {.width = help_width()}) + "\n"; }

// A row of two columns: "  --batch N        sequences of ..".
std::string row(const std::string& left, const std::string& help, size_t column) {
  std::string line = "  " + left;
  if (line.size() + 2 > column)
    line += "\n" + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + wrapped(help, {.width = help_width(), .indent = std::string(column, ' '), .taken = column}) + "\n";
}

std::string left_of(const CLI::Option& o) {
  if (o.get_positional()) return o.get_name(true);
  std::string text;
  for (auto& name : o.get_snames()) text += "-" + name + ", ";
  text += "--" + (o.get_lnames().empty() ? "" : o.get_lnames()[0]);
  if (o.get_items_expected_max() == 0) return text;
  std::string type = o.get_type_name().substr(0, o.get_type_name().find(':'));
  return text + " " + (type == "INT" || type == "UINT" ? "N" : type == "FLOAT" ? "X" : type == "TEXT" ? "VALUE" : type);
}

std::string help_of(const CLI::Option& o) {
  std::string help = o.get_description(), default_value = o.get_default_str();
  if (!default_value.empty() && help.find("default") == std::string::npos)
    help += fmt::format(" (default: {})", default_value);
  return help;
}

// Rare: settings other than the common ones, and CUDA library options.
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
  return text + "\n" +
         sentence("crest COMMAND --help shows the common options, crest COMMAND --help-all all of them.") +
         sentence("crest help settings explains every setting. crest --version shows versions, libraries included.");
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
  if (description.find('\n') == std::string::npos) {  // a line of crest --help as a sentence
    description[0] = char(std::toupper(static_cast<unsigned char>(description[0])));
    description = sentence(description + ".");
  } else {
    description += "\n";
  }
  std::string text = fmt::format("{} [OPTIONS]\n\n{}", usage, description);
  if (!command.examples.empty()) text += "\nExamples\n";
  for (const char* example : command.examples) text += fmt::format("  {}\n", example);
  if (!positional.empty()) text += "\nArguments\n" + positional;
  // A command's own options come before shared ones.
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
    text += "\n" + sentence(fmt::format("crest {} --help-all lists all options; crest help settings explains the "
                                        "settings.",
                                        command.name));
  return text;
}

namespace {

// A row of the page of settings.
struct SettingRow {
  std::string flag, help, values, default_value;
  const char* resume;
};

SettingRow setting_row(const Setting& s, const void* object, bool of_device) {
  std::string values = allowed(s);
  for (std::string prefix : {"Values: ", "Give "})
    if (values.starts_with(prefix)) values.erase(0, prefix.size());
  if (values.starts_with("For ")) values[0] = 'f';
  if (!values.empty() && values.back() == '.') values.pop_back();
  std::string default_value = *s.default_value ? s.default_value : text_of(s.get(s, object));
  const char* resume = of_device || s.resume == OnResume::accepts ? "accepts"
                       : s.resume == OnResume::notes              ? "notes"
                                                                  : "refuses";
  return {s.flag(), s.help, values, default_value, resume};
}

std::string markdown_row(const SettingRow& s) {
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", s.flag, s.help, s.values, s.default_value, s.resume);
}

std::string terminal_row(const SettingRow& s) {
  std::string text = s.help;
  if (!s.values.empty()) text += "; " + s.values;
  if (!s.default_value.empty()) text += "; default: " + s.default_value;
  return row(s.flag, fmt::format("{} (on resume: {})", text, s.resume), help_column);
}

}  // namespace

std::string settings_help() {
  const bool terminal = isatty(STDOUT_FILENO);
  std::string text =
      "# Settings\n\nThis page lists every setting. `crest help settings` prints it from the tables that Crest "
      "reads.\nA setting is a flag (`--grad-accumulation 4`), a key of a TOML file for `--config`\n(`grad_accumulation "
      "= 4`), a key in JSON, and a column of `crest runs list --columns`. *On resume*:\nwhat `crest train --resume` "
      "does when you give a value that differs from the run's: it *refuses*,\n*notes* the change in a line, or "
      "*accepts* it silently.\n";
  if (terminal)
    text = sentence(
        "A setting is a flag (--grad-accumulation 4), a key of a TOML file for --config (grad_accumulation = 4), a key "
        "in JSON, and a column of crest runs list --columns. On resume: crest train --resume with another value than "
        "the run's refuses, notes the change in a line, or accepts it silently.");
  std::vector<std::pair<std::string, std::string>> groups;  // title, rows; several tables may add to a group
  for (auto& table : setting_tables())
    for (auto& s : *table.rows) {
      auto group = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == s.group; });
      if (group == groups.end()) group = groups.emplace(group, s.group, "");
      SettingRow r = setting_row(s, table.defaults, table.rows == &device_settings());
      group->second += terminal ? terminal_row(r) : markdown_row(r);
    }
  for (auto& [title, rows] : groups)
    text += terminal ? fmt::format("\n{}\n{}", title, rows)
                     : fmt::format(
                           "\n## {}\n\n| setting | what it does | values | default | on resume |\n"
                           "|---|---|---|---|---|\n{}",
                           title, rows);
  return text;
}

}  // namespace crest
