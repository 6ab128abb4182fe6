// Writing TOML; without the weight of toml++.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// A basic string, quotes included: what TOML forbids in it (all control characters) is escaped. Bytes that are no
// UTF-8, which no TOML can hold, become U+FFFD: refuse them before where they matter (is_utf8).
std::string toml_string(std::string_view text);

}  // namespace crest
