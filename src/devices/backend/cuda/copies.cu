// Copies between pinned memory of the host and the GPU's, by the copy engines: no multiprocessor
// takes part.
#include <cstring>

#include "backend/cuda/device/platform.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

void copy(const KernelCall& c, size_t x) {
  auto bytes = size_t(c.in_value(x).bytes());
#if CREST_HAVE_CUDA
  // Either memory may be the other's: in the tests of single instructions all of it is the GPU's.
  check(cudaMemcpyAsync(c.out[0], c.in[x], bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(c.stream)),
        c.instr_name());
#else
  std::memcpy(c.out[0], c.in[x], bytes);
#endif
}

void launch_copy_in(const KernelCall& c) { copy(c, in::copy_in::x); }
void launch_copy_out(const KernelCall& c) { copy(c, in::copy_out::x); }

std::string reject(const KernelQuery&) { return ""; }

}  // namespace

Kernel copy_in_kernel() {
  return {"copy_in", "cuda.copy_in.memcpy", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_copy_in)};
}
Kernel copy_out_kernel() {
  return {"copy_out", "cuda.copy_out.memcpy", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_copy_out)};
}

}  // namespace crest::cuda
