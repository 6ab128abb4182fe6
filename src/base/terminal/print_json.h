#pragma once
#include <nlohmann/json_fwd.hpp>

namespace crest {

// Prints the document to standard output; invalid UTF-8 is replaced.
void print_json(const nlohmann::ordered_json& document);

}  // namespace crest
