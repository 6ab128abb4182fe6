#pragma once
#include <cstdint>

namespace crest {

// The smallest multiple of `step` not below n.
constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace crest
