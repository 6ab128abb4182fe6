// Writes TOML, without the cost of toml++.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// A basic string with quotes. Characters forbidden in it (all control characters) are escaped.
// Bytes of invalid UTF-8, impossible in TOML, become U+FFFD; if this matters, reject them first
// (is_utf8).
std::string toml_string(std::string_view text);

}  // namespace crest
