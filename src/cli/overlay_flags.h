// A second recipe on one command line: --ab of crest bench, --a and --b of crest compare.
#pragma once
#include <string>

#include "bench/bench_options.h"

namespace crest {

// These flags, of recipe, device and libraries, over the options of a cell. Usage errors name --ab.
void overlay_flags(const std::string& flags, CellOptions& cell);

}  // namespace crest
