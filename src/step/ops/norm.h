// Shared by passes and kernels of norm_grad.
#pragma once
#include "program/attrs.h"

namespace crest {

// The position of output `dropped` of norm_grad with attribute `apart`: dbeta and dbias, before it,
// are optional. (dbias has a fixed position, since it needs dbeta; y is the last output.)
inline size_t place_of_dropped(const Attrs& norm_grad) {
  return 2 + size_t(norm_grad.integer("beta", 0)) + size_t(norm_grad.integer("bias", 0));
}

}  // namespace crest
