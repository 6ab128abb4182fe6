// The runtime of kernels on the host: the CPU's, and the CUDA backend's under emulation.
#pragma once
#include "backend/runtime.h"

namespace crest {
std::unique_ptr<Runtime> make_host_runtime(const Device& device, const MeshGroups* groups);
// Makes a whole block of its allocate() zero again, without memory.
void forget_pages(void* memory, int64_t bytes);
}  // namespace crest
