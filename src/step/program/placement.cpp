#include "program/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

std::string text(Placement p) {
  static constexpr const char* names[] = {"replicated", "shard", "partial", "own", "absent", "each"};
  if (p.piece >= 0) return fmt::format("{}/{}", text(p.rows_of(-1)), p.piece);
  if (!p.cut()) return names[size_t(p.kind)];
  if (p.chunk) return fmt::format("chunks({},{})", p.dim, p.chunk);
  return p.queries ? fmt::format("heads({},{})", p.dim, p.queries) : fmt::format("shard({})", p.dim);
}

// Of a dimension: all of it, or queries, keys and values.
static std::vector<int64_t> sections_of(Placement shard, int64_t size) {
  const int64_t q = shard.queries, keys = size / (q + 2);
  return q ? std::vector{q * keys, keys, keys} : std::vector{size};
}

DimRange without_padding(Placement shard, int64_t size, int64_t padded, DimRange range) {
  const std::vector<int64_t> sections = sections_of(shard, size), whole = sections_of(shard, padded);
  int64_t first = 0, begin = 0;  // of a section, without and with padding
  for (size_t i = 0; i < sections.size(); ++i) {
    const int64_t end = begin + whole[i];
    if (range.begin >= begin && range.end <= end)
      return {first + std::min(range.begin - begin, sections[i]), first + std::min(range.end - begin, sections[i])};
    first += sections[i], begin = end;
  }
  fail_internal(fmt::format("{} to {} of {} {} are in two sections", range.begin, range.end, padded, text(shard)));
}

std::vector<DimRange> ranges_of(Placement shard, int64_t size, int index, int ranks) {
  std::vector<DimRange> ranges;
  if (const int64_t n = shard.chunk, sequence = 2 * n * ranks; n > 0) {
    if (size % sequence) fail_internal(fmt::format("{} of {} among {} ranks", text(shard), size, ranks));
    for (int64_t begin = 0; begin < size; begin += sequence)
      for (int64_t chunk : {int64_t(index), 2 * int64_t(ranks) - 1 - index})
        ranges.push_back({begin + chunk * n, begin + (chunk + 1) * n});
    return ranges;
  }
  const std::vector<int64_t> sections = sections_of(shard, size);
  int64_t begin = 0;
  for (int64_t n : sections) {
    if (!shard.cut() || n % ranks) fail_internal(fmt::format("{} of {} among {} ranks", text(shard), size, ranks));
    ranges.push_back({begin + n / ranks * index, begin + n / ranks * (index + 1)});
    begin += n;
  }
  return ranges;
}

}  // namespace crest
