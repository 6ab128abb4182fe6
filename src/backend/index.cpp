#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cpu/index.h"
#include "core/error.h"

namespace crest {

const std::vector<Kernel>& kernels_of(const std::string& backend) {
  static const std::vector<Kernel> cpu = cpu_kernels();
  if (backend == "cpu") return cpu;
  throw Error(Exit::no_device, fmt::format("this build has no backend '{}'", backend), "--device", "Use --device cpu.");
}

}  // namespace crest
