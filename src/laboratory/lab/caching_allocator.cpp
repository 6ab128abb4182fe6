#include "lab/caching_allocator.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/round_up.h"

namespace crest::lab {

namespace {

constexpr int64_t KiB = 1024, MiB = 1024 * KiB;
constexpr int64_t least = 512, small_request = MiB, small_segment = 2 * MiB;
constexpr int64_t medium_request = 10 * MiB, medium_segment = 20 * MiB, large_rounding = 2 * MiB;

// Free and used blocks by address. Segments are far apart, so neighbors belong to the same segment.
class Allocator {
 public:
  int64_t take(int64_t bytes) {
    int64_t size = std::max(least, round_up(bytes, least));
    bool small = size <= small_request;
    auto best = pieces_.end();
    for (auto it = pieces_.begin(); it != pieces_.end(); ++it) {
      const Piece& p = it->second;
      if (p.free && p.small == small && p.bytes >= size && (best == pieces_.end() || p.bytes < best->second.bytes))
        best = it;
    }
    if (best == pieces_.end()) best = new_segment(size, small);
    int64_t rest = best->second.bytes - size;
    if (small ? rest >= least : rest > small_request) {
      best->second.bytes = size;
      pieces_[best->first + size] = {rest, true, small, best->second.segment};
    }
    best->second.free = false;
    return best->first;
  }

  void release(int64_t address) {
    auto it = pieces_.find(address);
    it->second.free = true;
    join_with_next(it);
    if (it != pieces_.begin()) join_with_next(std::prev(it));
  }

  int64_t reserved() const { return reserved_; }

 private:
  struct Piece {
    int64_t bytes = 0;
    bool free = true, small = false;
    int segment = 0;
  };
  using Pieces = std::map<int64_t, Piece>;

  Pieces::iterator new_segment(int64_t size, bool small) {
    int64_t bytes = small ? small_segment : size < medium_request ? medium_segment : round_up(size, large_rounding);
    reserved_ += bytes;
    int64_t address = end_;
    end_ += bytes;
    return pieces_.emplace(address, Piece{bytes, true, small, ++segments_}).first;
  }

  void join_with_next(Pieces::iterator it) {
    auto next = std::next(it);
    if (next == pieces_.end() || !it->second.free || !next->second.free || it->second.segment != next->second.segment)
      return;
    it->second.bytes += next->second.bytes;
    pieces_.erase(next);
  }

  Pieces pieces_;
  int64_t reserved_ = 0, end_ = 0;
  int segments_ = 0;
};

}  // namespace

int64_t caching_allocator_bytes(const MemoryPlan& plan) {
  int last = 0;
  for (auto& b : plan.blocks) last = std::max(last, b.last);
  std::vector<std::vector<const Block*>> begin(size_t(last) + 1);
  std::vector<std::vector<int64_t>> end(size_t(last) + 1);
  for (auto& b : plan.blocks) begin[size_t(b.first)].push_back(&b);
  Allocator allocator;
  for (size_t i = 0; i < begin.size(); ++i) {
    for (const Block* b : begin[i]) end[size_t(b->last)].push_back(allocator.take(b->bytes));
    for (int64_t address : end[i]) allocator.release(address);
  }
  return allocator.reserved();
}

}  // namespace crest::lab
