#include "backend/cpu/reference/index.h"

#include "backend/cpu/reference/kernels.h"

namespace crest {

static std::string takes_all(const KernelQuery&) { return ""; }

std::vector<Kernel> cpu_reference_kernels() {
#define CREST_REFERENCE_KERNEL(operation, inputs, outputs) \
  {.op = #operation, .name = "cpu." #operation ".reference", .reject = takes_all, .launch = reference::operation},
  return {CREST_LOCAL_OPS(CREST_REFERENCE_KERNEL) CREST_QUANTIZED_NORMS(CREST_REFERENCE_KERNEL)};
#undef CREST_REFERENCE_KERNEL
}

}  // namespace crest
