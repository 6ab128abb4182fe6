// Dropout in kernels over rows (core/random.h).
#pragma once
#include "backend/cpu/simd/dropout.h"
#include "backend/cpu/simd/philox.h"
#include "core/random.h"

namespace crest::cpu::CREST_ISA {

// Elements first .. first+n-1 of a sample, at x and y.
template <class T>
void drop_elements(const T* x, T* y, int64_t first, int64_t n, double p, uint64_t seed, uint64_t stream) {
  constexpr int64_t tile = 1024, spare = 4 * philox_lanes;
  uint32_t words[tile + 2 * spare];
  const uint32_t threshold = keep_threshold(p);
  const float factor = float(1.0 / (1.0 - p));
  const int64_t skip = first % 4;  // a block of random words begins at a multiple of 4
  for (int64_t e = 0; e < n; e += tile) {
    const int64_t now = n - e < tile ? n - e : tile;
    philox_words(seed, stream, uint64_t(first + e) / 4, (skip + now + 3) / 4, words);
    for_vectors(now, [&](int64_t i, int64_t k) {
      Vu word = *(const VuMemory*)(words + skip + i);
      store_some(y + e + i, (word >> 8) >= threshold ? load_some(x + e + i, k) * factor : Vf{}, k);
    });
  }
}

template <class T>
void drop_row(const DropoutRows& d, int64_t row, const T* x, T* y, int64_t n) {
  const int64_t at = row + d.first;
  uint64_t stream = dropout_stream(uint64_t(d.scalars->sample_base + at / d.rows), d.rng_id);
  const int64_t t = at % d.rows;
  drop_elements(x, y, (t + (t < d.half ? d.before : d.upper)) * n, n, d.p, d.scalars->seed, stream);
}

}  // namespace crest::cpu::CREST_ISA
