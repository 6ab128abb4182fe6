// Host side of the kernels over rows (device/rows_slice.h): which of their instances fits a row.
#pragma once
#include <type_traits>

#include "backend/cuda/kernel.h"

namespace crest::cuda {

// Calls body(std::integral_constant<int, K>()) with the first K of the ascending list that is at least `needed`; false
// when none is.
template <int... K, class Body>
bool with_at_least(int64_t needed, Body&& body) {
  return ((needed <= K && (body(std::integral_constant<int, K>()), true)) || ...);
}

}  // namespace crest::cuda
