#include "predict/product_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace crest {

namespace {

struct LibraryTile {
  int64_t m, n;
  double slower = 1;  // per FLOP: a small tile reads its operands more often
};
// Of cuBLASLt's and Crest's kernels for Hopper.
constexpr LibraryTile library_tiles[] = {{128, 256}, {256, 128}, {128, 192}, {192, 128}, {128, 128, 1.05}};
// Fitted to calibrations of the H100 and the H200, and tried on other products of an H200:
// docs/results/predictions.md. Blocks that are done start with the next instruction, so a product
// waits only for a share of its last round.
constexpr double waits_for_last = 0.3;
// With less than a round of tiles, libraries take smaller ones, so most of the rest is not idle.
constexpr double idle_below_round = 0.2;
// Several blocks can share the sum of a tile, if it is long.
constexpr int64_t shares[] = {1, 2, 4, 8}, least_sum = 1024;
constexpr double slower_in_shares = 1.05;
constexpr int64_t most_rows = int64_t(1) << 40;

int64_t tiles_along(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace

ProductShape product_shape(const ProfileInstr& row) {
  if (!row.kernel.starts_with("cuda.linear")) return {};
  const std::vector<int64_t> sizes = dimensions(row.type);
  if (sizes.size() < 2) return {};
  ProductShape shape{1, sizes.back()};
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (shape.m > most_rows / sizes[i]) return {};  // a damaged file
    shape.m *= sizes[i];
  }
  if (row.op == "linear_swiglu") shape.n *= 2;  // gate and up
  return shape;
}

double tile_factor(ProductShape shape, double k, int64_t multiprocessors) {
  if (!shape.known()) return 1;
  double least = std::numeric_limits<double>::infinity();
  for (const LibraryTile& tile : library_tiles) {
    const double count = double(tiles_along(shape.m, tile.m) * tiles_along(shape.n, tile.n));
    const double whole = count * double(tile.m * tile.n) / (double(shape.m) * double(shape.n)) * tile.slower;
    if (multiprocessors <= 0) least = std::min(least, whole);
    for (int64_t share : shares) {
      if (multiprocessors <= 0 || (share > 1 && k < double(share * least_sum))) break;
      const double rounds = count * double(share) / double(multiprocessors);
      const double idle =
          rounds >= 1 ? waits_for_last * (std::ceil(rounds) / rounds - 1) : idle_below_round * (1 / rounds - 1);
      least = std::min(least, whole * (1 + idle) * (share > 1 ? slower_in_shares : 1));
    }
  }
  return least;
}

}  // namespace crest
