// Completions of crest's command line, and the scripts for them.
#pragma once
#include <string>
#include <vector>

namespace crest {

struct CompletedFlag {
  std::string name;  // "--model"
  std::string help;
  bool takes_value = true;
  std::vector<std::string> values;  // a closed set, or suggestions; empty: files
};
struct CompletedCommand {
  std::string name, help;
  std::vector<std::string> actions;  // values of the first positional argument
  std::vector<CompletedFlag> flags;
};

// From the table of commands and their options.
std::vector<CompletedCommand> completed_commands();

std::string bash_completions(const std::vector<CompletedCommand>& commands);
std::string zsh_completions(const std::vector<CompletedCommand>& commands);
std::string fish_completions(const std::vector<CompletedCommand>& commands);

}  // namespace crest
