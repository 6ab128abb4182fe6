// The GPU in --device.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace crest {

// N of "cuda:N", 0 of "cuda"; none for any other text.
std::optional<size_t> gpu_of(const std::string& spec);

}  // namespace crest
