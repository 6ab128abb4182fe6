// What is not the same on both sides before anything is measured: recipe, device, versions, kernels, conditions.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/side.h"

namespace crest {

std::vector<Difference> find_differences(const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
