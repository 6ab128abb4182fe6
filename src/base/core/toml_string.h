// Writes TOML, without the cost of toml++.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// A basic string with quotes. What TOML forbids in it (all control characters) is escaped. Bytes
// that are not UTF-8, which TOML cannot hold, become U+FFFD; if that matters, reject them first
// (is_utf8).
std::string toml_string(std::string_view text);

}  // namespace crest
