// Arguments of kernels for dropout.
#pragma once
#include "backend/cuda/device/platform.h"
#include "core/scalars.h"

namespace crest::cuda {

// Dropout of an instruction.
struct DropoutRule {
  const Scalars* scalars;  // null: nothing is dropped
  uint32_t rng_id;
  uint32_t threshold;       // element is kept when the upper 24 bits of its random word are >= threshold
  float keep_scale;         // 1 / (1 - p)
  unsigned first_head = 0;  // of attention: heads of other ranks before this one's
};

// The same for kernels over rows.
struct DropoutRows {
  DropoutRule rule = {};
  unsigned rows = 1, first = 0, before = 0, half = 0x7fffffff, upper = 0;  // backend/dropout_place.h

  __host__ __device__ unsigned in_sample(unsigned row) const {
    const unsigned t = (row + first) % rows;
    return t + (t < half ? before : upper);
  }
};

}  // namespace crest::cuda
