// Numbers of tensors, to compare the weights of ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/runtime.h"

namespace crest {

// Of each tensor, all of one runtime: the same for the same bytes, and almost certainly another one
// for others. Host and device memory have different ones. Waits for the device's work.
std::vector<uint64_t> checksums(const std::vector<TensorRef>& tensors);

}  // namespace crest
