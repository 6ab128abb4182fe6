#include "cli/command.h"

#include <fmt/format.h>

#include "device/find.h"
#include "device/libraries.h"
#include "host/isa.h"

namespace crest {

void print_versions() {
  fmt::print("crest {}\n", CREST_VERSION);
  for (auto& [library, version] : library_versions(find_device("auto", 0))) fmt::print("  {} {}\n", library, version);
  fmt::print("  compiler {}\n  kernels {}\n", __VERSION__, name(active_isa()));
}

}  // namespace crest
