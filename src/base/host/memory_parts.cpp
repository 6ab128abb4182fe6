#include "host/memory_parts.h"

#include <algorithm>
#include <utility>

#include "host/memory.h"

namespace crest {

MemoryParts::MemoryParts(std::string first) { parts_.push_back({std::move(first), 0, {}, 0}); }

void MemoryParts::close() {
  MemoryPart& part = parts_.back();
  part.end = resident_bytes();
  if (peak_known_) part.peak = std::max({peak_resident_bytes(), part.start, part.end});
}

void MemoryParts::begin(std::string part) {
  close();
  peak_known_ = reset_peak_resident();
  parts_.push_back({std::move(part), parts_.back().end, {}, 0});
}

std::vector<MemoryPart> MemoryParts::end() {
  close();
  return std::move(parts_);
}

}  // namespace crest
