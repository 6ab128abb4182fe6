// Starts a kernel without an instruction: on a stream, after everything before it.
#pragma once
#include "backend/cuda/kernel.h"

namespace crest::cuda {

#if CREST_HAS_DEVICE_CODE
// what: the kernel's name in errors.
template <class... P, class... A>
void launch_on_stream([[maybe_unused]] void* stream, [[maybe_unused]] const char* what, void (*kernel)(P...), dim3 grid,
                      dim3 block, A... args) {
#if defined(__CUDACC__)
  check(start_kernel({stream, false}, kernel, grid, block, 0, args...), what);
#else
  emulator::run(grid, block, 0, [&] { kernel(static_cast<P>(args)...); });
#endif
}
#endif

}  // namespace crest::cuda
