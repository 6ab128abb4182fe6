// Files of the repository built into the program. cmake/embed.cmake defines a function for each
// folder; the reading file declares it.
#pragma once
#include <string_view>
#include <vector>

namespace crest {

struct EmbeddedFile {
  std::string_view name;  // without folder and extension
  std::string_view text;
};

}  // namespace crest
