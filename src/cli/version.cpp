#include "cli/version.h"

#include <fmt/format.h>

#include "backend/cpu/isa.h"
#include "measure/libraries.h"
#include "plan/device.h"

namespace crest {

void print_versions() {
  fmt::print("crest {}\n", CREST_VERSION);
  for (auto& [library, version] : library_versions(find_device("auto", 0))) fmt::print("  {} {}\n", library, version);
  fmt::print("  compiler {}\n  kernels {}\n", __VERSION__, name(active_isa()));
}

}  // namespace crest
