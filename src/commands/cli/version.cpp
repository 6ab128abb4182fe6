#include "cli/command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/find.h"
#include "device/libraries.h"
#include "host/isa.h"
#include "terminal/print_json.h"

namespace crest {

void print_versions(bool json) {
  if (json) {
    auto libraries = nlohmann::ordered_json::array();
    for (auto& l : library_states(find_device("auto", 0)))
      libraries.push_back({{"name", l.name}, {"version", l.version}, {"path", l.path}, {"install", l.install}});
    return print_json({{"version", CREST_VERSION},
                       {"libraries", libraries},
                       {"compiler", __VERSION__},
                       {"kernels", name(active_isa())}});
  }
  fmt::print("crest {}\n", CREST_VERSION);
  for (auto& l : library_states(find_device("auto", 0)))
    fmt::print("  {} {}{}{}\n", l.name, l.version, l.install.empty() && l.path.empty() ? "" : ": ",
               l.install.empty() ? l.path : l.install);
  fmt::print("  compiler {}\n  kernels {}\n", __VERSION__, name(active_isa()));
}

}  // namespace crest
