// A subcommand: one file cli/NAME.cpp and one row in cli/commands.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace crest {

struct Command {
  const char* name;
  const char* group;  // heading in crest --help
  const char* help;
  std::vector<const char*> examples;  // of --help: command lines
  // Declares the options on the subcommand's App and returns what runs after parsing; its result is the exit code.
  std::function<int()> (*setup)(CLI::App&);
};

// The table of subcommands (cli/commands.cpp).
const std::vector<Command>& commands();

// crest --help: the commands in their groups.
std::string program_help();
// crest COMMAND --help: usage, examples, the common options; all: every option. Lines of at most 100 columns.
std::string command_help(const Command& command, const CLI::App& app, bool all);
// Crest and every library that is opened, with versions (cli/version.cpp).
void print_versions();
// docs/settings.md: the tables of settings as Markdown.
std::string settings_page();

}  // namespace crest
