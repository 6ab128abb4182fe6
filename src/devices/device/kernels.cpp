#include "device/kernels.h"

#include <fmt/format.h>

#include "backend/cpu/index.h"
#include "backend/cuda/index.h"
#include "core/error.h"

namespace crest {

const std::vector<Kernel>& kernels_of(const std::string& backend) {
  if (backend == "cpu") return cpu_kernels();
  if (backend == "cuda") return cuda_kernels();
  throw Error(Exit::no_device, fmt::format("this build does not include the backend '{}'", backend), "--device",
              "Use --device cpu.");
}

}  // namespace crest
