// Numbers in JSON. Include this only from .cpp files, like core/json.h.
#pragma once
#include <cmath>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace crest {

// The value, if it is a whole number in the range of T. json::get<T>() accepts any number: it turns
// 2.5 into 2, 2^40 into something else for 32 bits, and 1e300 into anything.
template <std::integral T>
std::optional<T> whole_number(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    auto n = value.get<uint64_t>();
    return std::in_range<T>(n) ? std::optional<T>(T(n)) : std::nullopt;
  }
  if (!value.is_number_integer()) return std::nullopt;
  auto n = value.get<int64_t>();
  return std::in_range<T>(n) ? std::optional<T>(T(n)) : std::nullopt;
}

// JSON has no infinities and no NaN: null stands for them.
inline nlohmann::ordered_json number_or_null(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

}  // namespace crest
