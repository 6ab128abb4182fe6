// crest plan --explain in a terminal.
#pragma once
#include <string>

#include "plan/explain.h"

namespace crest {

std::string text_of(const Explanation& explanation, bool color, size_t width);

}  // namespace crest
