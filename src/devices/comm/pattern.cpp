#include "comm/pattern.h"

namespace crest {

// A prime, so no chunk or segment of a transfer is a multiple of it.
static constexpr int64_t period = 251;

double pattern_value(int rank, int64_t place) {
  auto x = uint64_t(place % period) * 0x9e3779b97f4a7c15u + uint64_t(rank) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  return double((x >> 33) % 5) - 2;
}

void fill_pattern(void* data, DType dtype, int64_t count, int rank, int64_t first) {
  double values[period];
  for (int64_t i = 0; i < period; ++i) values[i] = pattern_value(rank, i);
  for (int64_t i = 0; i < count; ++i) store_element(data, dtype, i, values[(first + i) % period]);
}

ExpectedResult::ExpectedResult(Collective c, int rank, int ranks, int64_t elements)
    : collective_(c),
      previous_((rank + ranks - 1) % ranks),
      part_(elements / ranks),
      first_(0),
      count_(elements),
      sums_(size_t(period)) {
  if (c == Collective::reduce_scatter || c == Collective::all_to_all) first_ = part_ * rank;
  if (c == Collective::reduce_scatter) count_ = part_;
  for (int64_t i = 0; i < period; ++i)
    for (int r = 0; r < ranks; ++r) sums_[size_t(i)] += pattern_value(r, i);
}

double ExpectedResult::at(int64_t place) const {
  switch (collective_) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: return sums_[size_t((first_ + place) % period)];
    case Collective::all_gather: return pattern_value(int(place / part_), place % part_);
    case Collective::broadcast: return pattern_value(0, place);
    case Collective::all_to_all: return pattern_value(int(place / part_), first_ + place % part_);
    case Collective::send_receive: return pattern_value(previous_, place);
  }
  return 0;
}

}  // namespace crest
