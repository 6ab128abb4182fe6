// Host side of the kernels over rows (device/rows_slice.h): the instance for a row.
#pragma once
#include <type_traits>

#include "backend/cuda/device/rows_pack.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

// Calls body(std::integral_constant<int, K>()) with the first K of the ascending list not below
// `needed`; false if there is none.
template <int... K, class Body>
bool with_at_least(int64_t needed, Body&& body) {
  return ((needed <= K && (body(std::integral_constant<int, K>()), true)) || ...);
}

// Rows in registers: calls body(threads, k), integral constants, with the threads of a row and the
// vectors in each of them; a warp if this is enough (GPT-2's widths of 768, 1024, 1280 and 1600
// fill 3, 4, 5 and 6 1/4 vectors of half-precision numbers a lane), else a block. False if rows of
// `cols` elements are too long or no whole vectors.
template <class T, class Body>
bool with_slice(int64_t cols, Body&& body) {
  if (cols % Pack<T>::size) return false;
  int64_t vectors = cols / Pack<T>::size;
  auto with = [&](auto threads) { return [&, threads](auto k) { body(threads, k); }; };
  return with_at_least<1, 2, 3, 4, 5, 6, 7, 8>((vectors + 31) / 32, with(std::integral_constant<int, 32>())) ||
         with_at_least<4, 8>((vectors + 127) / 128, with(std::integral_constant<int, 128>())) ||
         with_at_least<8>((vectors + 511) / 512, with(std::integral_constant<int, 512>()));
}

}  // namespace crest::cuda
