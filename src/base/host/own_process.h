// Runs a subcommand of this program in its own process. Then things that a process reads once at
// its start (CUDA libraries, environment variables) can be varied like settings, and processes that
// start processes can be measured.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/external.h"

namespace crest {

// The JSON document that it prints with --json (include that in the arguments, which begin with the
// subcommand). Throws `interrupted` after Ctrl-C, does_not_fit if the process reports that, and
// otherwise an error with how it ended and its last message.
nlohmann::ordered_json run_own_process(const std::vector<std::string>& arguments,
                                       const std::vector<Variable>& variables = {});

// The same, from how a process ended. `what` names it in errors.
nlohmann::ordered_json document_of(const CommandOutput& output, const std::string& what);

}  // namespace crest
