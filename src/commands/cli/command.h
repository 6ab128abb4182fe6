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
  std::vector<const char*> examples;  // command lines shown by --help
  // Declares the options on the subcommand's App. Returns the function to run after parsing; its
  // result is the exit code.
  std::function<int()> (*setup)(CLI::App&);
};

// The table of subcommands (cli/commands.cpp).
const std::vector<Command>& commands();

// crest --help: the commands in their groups.
std::string program_help();
// crest COMMAND --help: usage, examples and the common options. all: every option. Lines have
// at most 100 columns, and fit the terminal.
std::string command_help(const Command& command, const CLI::App& app, bool all);
// Versions of Crest and of every library it opens (cli/version.cpp).
void print_versions(bool json);
// crest help settings: the tables of settings, in Markdown (docs/reference/settings.md) if standard
// output is not a terminal.
std::string settings_help();

}  // namespace crest
