// Finds the device to run on or to plan for.
#pragma once
#include <string>

#include "backend/backend.h"
#include "host/isa.h"

namespace crest {

// spec: "auto", "cpu", "cuda:N", or a device file (device/data_sheet.h, for planning only). threads
// 0: all threads of the process. Throws no_device with the reason.
Device find_device(const std::string& spec, int threads);

// The CPU of this process with another number of threads, named accordingly. Other devices as they
// are.
Device with_threads(const Device& device, int threads);

// Throws for a described device, since nothing can run on it.
void check_here(const Device& device);

// A sentence if the best class of this machine has no fast kernels; else "".
std::string slow_kernels_note(Isa best);

// A CPU of a class, to plan for, and to run on if this process has this class. threads 0: as above.
Device cpu_device(Isa, int threads);

}  // namespace crest
