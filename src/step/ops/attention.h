// Shared by the operations of attention and their kernels.
#pragma once
#include <cstdint>

#include "program/attrs.h"
#include "program/chunks.h"

namespace crest {

// Attribute `window` of causal attention over `keys` keys: how many of them a query sees at most,
// its own included. 0: there is no window, or it holds all keys.
inline int64_t window_of(const Attrs& attrs, int64_t keys) {
  int64_t window = attrs.integer("window", 0);
  return window < keys ? window : 0;
}

}  // namespace crest
