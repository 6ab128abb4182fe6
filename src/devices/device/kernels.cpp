#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cpu/index.h"
#include "backend/cuda/index.h"
#include "core/error.h"
#include "program/op.h"

namespace crest {

const std::vector<Kernel>& kernels_of(const std::string& backend) {
  static const std::vector<Kernel> cpu = cpu_kernels();
  static const std::vector<Kernel> cuda = cuda_kernels();
  if (backend == "cpu") return cpu;
  if (backend == "cuda") return cuda;
  throw Error(Exit::no_device, fmt::format("this build does not include the backend '{}'", backend), "--device",
              "Use --device cpu.");
}

const char* KernelCall::instr_name() const { return instr.op->name; }

}  // namespace crest
