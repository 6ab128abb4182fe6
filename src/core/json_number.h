// Whole numbers out of JSON. Include this only from .cpp files, as core/json.h.
#pragma once
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace crest {

// The value, when it is a whole number that T holds. json::get<T>() takes any number: of 2.5 it makes 2, of 2^40 for 32
// bits something else, and of 1e300 whatever the compiler likes.
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

}  // namespace crest
