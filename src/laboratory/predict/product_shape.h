// The sizes of a matrix product in a profile, and how much longer whole tiles take than its FLOPs.
#pragma once
#include <cstdint>

#include "profile/profile.h"

namespace crest {

// The result of c[m, n] = a[m, k] b[k, n]. The FLOPs give k.
struct ProductShape {
  int64_t m = 0, n = 0;  // 0: not a product of a GPU's linear layer, or unknown
  bool known() const { return m > 0 && n > 0; }
  auto operator<=>(const ProductShape&) const = default;
};

ProductShape product_shape(const ProfileInstr& row);

// Time of the product in tiles over the time of its FLOPs, at least 1. Tiles at the edge take as
// long as whole ones, and in the last round some multiprocessors have no tile. multiprocessors 0:
// unknown, rounds are not counted. Of the tiles that libraries use, the fastest counts.
double tile_factor(ProductShape shape, double k, int64_t multiprocessors);

}  // namespace crest
