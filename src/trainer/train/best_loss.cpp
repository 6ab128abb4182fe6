#include "train/best_loss.h"

#include <cmath>

namespace crest {

void BestLoss::add(int64_t at, double loss, double min_delta) {
  step = at;
  const bool first = best_step < 0, finite = std::isfinite(loss);
  const bool improved = finite && (first || (loss < reference && reference - loss >= min_delta));
  waited = improved ? 0 : waited + 1;
  if (improved) reference = loss;
  if (finite && (first || loss < best)) best = loss, best_step = at;
}

}  // namespace crest
