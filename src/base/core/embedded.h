// Files of the repository that are built into the program (cmake/embed.cmake).
#pragma once
#include <string_view>
#include <vector>

namespace crest {

struct EmbeddedFile {
  std::string_view name;  // without folder and extension
  std::string_view text;
};

// devices/*.toml, by name.
const std::vector<EmbeddedFile>& embedded_devices();
// calibrations/*.json, by name of the device in devices/.
const std::vector<EmbeddedFile>& embedded_calibrations();
// experiments/*.toml, by name.
const std::vector<EmbeddedFile>& embedded_experiments();

}  // namespace crest
