// The runs that count where a few are much slower than the rest.
#pragma once
#include <cstddef>
#include <vector>

namespace crest {

// Indices of the runs in the middle half by time, fastest first; at least one.
std::vector<size_t> middle_half(const std::vector<double>& seconds);

}  // namespace crest
