// A second recipe on one command line: --ab of crest bench, --a and --b of crest compare.
#pragma once
#include <string>

#include "bench/bench_options.h"

namespace crest {

// Applies flags of the recipe, device and libraries on top of a measurement's options. Usage errors
// name --ab.
void overlay_flags(const std::string& flags, MeasurementOptions& measurement);

}  // namespace crest
