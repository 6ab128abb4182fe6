#include "program/placement.h"

#include <fmt/format.h>

#include "core/error.h"

namespace crest {

std::string text(Placement p) {
  static constexpr const char* names[] = {"replicated", "shard", "partial", "own", "absent"};
  if (!p.cut()) return names[size_t(p.kind)];
  return p.queries ? fmt::format("heads({},{})", p.dim, p.queries) : fmt::format("shard({})", p.dim);
}

std::vector<DimRange> ranges_of(Placement shard, int64_t size, int index, int ranks) {
  std::vector<int64_t> sections = {size};
  if (const int64_t q = shard.queries) {
    const int64_t keys = size / (q + 2);
    sections = {q * keys, keys, keys};
  }
  std::vector<DimRange> ranges;
  int64_t begin = 0;
  for (int64_t n : sections) {
    if (!shard.cut() || n % ranks) fail_internal(fmt::format("{} of {} among {} ranks", text(shard), size, ranks));
    ranges.push_back({begin + n / ranks * index, begin + n / ranks * (index + 1)});
    begin += n;
  }
  return ranges;
}

}  // namespace crest
