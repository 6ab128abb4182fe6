#include "stats/middle_half.h"

#include <algorithm>
#include <numeric>

namespace crest {

std::vector<size_t> middle_half(const std::vector<double>& seconds) {
  std::vector<size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds[a] < seconds[b]; });
  auto outside = std::ptrdiff_t((seconds.size() + 1) / 4);
  order.erase(order.end() - outside, order.end());
  order.erase(order.begin(), order.begin() + outside);
  return order;
}

}  // namespace crest
