// The TOML check without the cost of toml++: for code that only asks whether a file is well-formed.
#pragma once
#include <string_view>

namespace crest {

// Throws the errors of parse_toml (core/toml.h).
void check_toml(std::string_view text, std::string_view where);

}  // namespace crest
