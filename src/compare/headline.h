// The one sentence that somebody reads who reads no more: how much faster, how much memory, and because of what.
#pragma once
#include <string>

#include "compare/compare.h"

namespace crest {

// "" when neither times nor memory are known.
std::string headline(const RunComparison& comparison);

}  // namespace crest
