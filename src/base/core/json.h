// Guarded JSON. Include this only from .cpp files: nlohmann/json is slow to compile.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace crest {

// Limits on a document, checked in one linear scan before anything is built. The number of values
// bounds the memory of the DOM (up to about 150 bytes each): the default keeps it under 64 MB for
// any text. Raise it for known large files.
struct JsonLimits {
  uint64_t bytes = uint64_t(64) << 20;
  int depth = 32;
  uint64_t values = 400'000;                  // scalars, arrays, objects and keys
  uint64_t string_bytes = uint64_t(8) << 20;  // one string, number or run of white space, as written
  uint64_t keys = 400'000;                    // per object
};

// Throws if the text exceeds the limits. Does not check the grammar: parse afterwards.
void check_json_limits(std::string_view text, const JsonLimits& limits, std::string_view where);
// Parses untrusted text; `where` is the file. Throws with line and column. Of duplicate keys, the
// last one wins.
nlohmann::json parse_json_guarded(std::string_view text, const JsonLimits& limits, std::string_view where);
// The same, with the keys in the order of the text. Such an object looks up a key by scanning all
// of them: set limits.keys to a few thousand, or a text of nothing but keys takes quadratic time.
nlohmann::ordered_json parse_ordered_json_guarded(std::string_view text, const JsonLimits& limits,
                                                  std::string_view where);
// "line 3, column 14" for a byte position (from 0).
std::string line_and_column(std::string_view text, size_t position);

}  // namespace crest
