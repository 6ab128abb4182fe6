// Runs a subcommand of this program in its own process. Then settings read once at the start of a
// process (CUDA libraries, environment variables) can vary like others, and processes with child
// processes can be measured.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/external.h"

namespace crest {

// Its JSON document of --json (include it in the arguments, after the subcommand). Throws
// `interrupted` after Ctrl-C, does_not_fit if the process reports it, and otherwise an error with
// the way it ended and its last message.
nlohmann::ordered_json run_own_process(const std::vector<std::string>& arguments,
                                       const std::vector<Variable>& variables = {});

// The same, from the end of a process. `what` names it in errors.
nlohmann::ordered_json document_of(const CommandOutput& output, const std::string& what);

}  // namespace crest
