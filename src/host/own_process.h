// A subcommand of this program in a process of its own: what a process reads at its start (CUDA's libraries,
// environment variables) is a setting then, and processes that start processes can be measured.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/external.h"

namespace crest {

// What it prints with --json (add it to the arguments, which begin with the subcommand). Throws `interrupted` after
// Ctrl-C, does_not_fit when the process says so, else an error with how it ended and the last that it said.
nlohmann::ordered_json run_own_process(const std::vector<std::string>& arguments,
                                       const std::vector<Variable>& variables = {});

// The same of how a process ended; what: names it in errors.
nlohmann::ordered_json document_of(const CommandOutput& output, const std::string& what);

}  // namespace crest
