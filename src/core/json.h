// Guarded JSON. Include this only from .cpp files: nlohmann/json is slow to compile.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace crest {

// Caps on a document, checked in one linear scan before anything is built. The number of values bounds the memory of
// the DOM (up to some 150 bytes each): the default stays under 64 MB whatever the text is. Raise it for known large
// files.
struct JsonLimits {
  uint64_t bytes = uint64_t(64) << 20;
  int depth = 32;
  uint64_t values = 400'000;                  // scalars, arrays, objects and keys
  uint64_t string_bytes = uint64_t(8) << 20;  // of one string, number or run of white space, as written
  uint64_t keys = 400'000;                    // of one object
};

// Throws when the text is beyond the limits. Does not check the grammar: parse afterwards.
void check_json_limits(std::string_view text, const JsonLimits& limits, std::string_view where);
// Parses untrusted text; `where` is the file. Throws with line and column. Duplicate keys: the last one counts.
nlohmann::json parse_json_guarded(std::string_view text, const JsonLimits& limits, std::string_view where);
// The same with the keys in the order of the text. Such an object finds a key by looking at all of them: set
// limits.keys to some thousand, or a text of nothing but keys takes the square of its size.
nlohmann::ordered_json parse_ordered_json_guarded(std::string_view text, const JsonLimits& limits,
                                                  std::string_view where);
// "line 3, column 14" of a byte position (from 0).
std::string line_and_column(std::string_view text, size_t position);

}  // namespace crest
