// Finding the device that a run is planned for.
#pragma once
#include <string>

#include "backend/backend.h"

namespace crest {

// spec: "auto", "cpu", "cuda:N", "h200" (for planning only), "emulated" (CUDA kernels on the host, for tests); threads
// 0: all that the process may use. Throws no_device with the reason.
Device find_device(const std::string& spec, int threads);

}  // namespace crest
