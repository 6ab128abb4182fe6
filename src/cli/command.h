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
  const char* help;
  // Declares the options on the subcommand's App and returns what runs after parsing; its result is the exit code.
  std::function<int()> (*setup)(CLI::App&);
};

// The table of subcommands (cli/commands.cpp).
const std::vector<Command>& commands();

}  // namespace crest
