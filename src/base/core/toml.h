// Guarded TOML. Include this only from .cpp files of src/: toml++ is slow to compile.
#pragma once
#include <toml++/toml.h>
#include <cstdint>
#include <string_view>

namespace crest {

struct TomlLimits {
  uint64_t bytes = uint64_t(4) << 20;
  int depth = 64;  // tables, dotted keys, arrays and inline tables, in total
};

// Parses untrusted text; `where` is the file. Throws a usage error (exit code 2) with line and
// column.
toml::table parse_toml(std::string_view text, std::string_view where, const TomlLimits& limits = {});

}  // namespace crest
