#include "lab/caching_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/round_up.h"
#include "core/text.h"

namespace crest::lab {

namespace {

constexpr int64_t MiB = 1 << 20;
constexpr int64_t least = 512, small_request = MiB, small_segment = 2 * MiB;
constexpr int64_t medium_request = 10 * MiB, medium_segment = 20 * MiB, large_rounding = 2 * MiB;
constexpr int64_t no_limit = int64_t(1) << 60;
// Expandable segments: the address space of each pool.
constexpr int64_t address_space = int64_t(1) << 50;

int64_t segment_size(int64_t size, bool small) {
  return small ? small_segment : size < medium_request ? medium_segment : round_up(size, large_rounding);
}

// Free and used blocks by address. Neighbors with the same segment number are one cudaMalloc.
class Allocator {
 public:
  explicit Allocator(const AllocatorSettings& s) : s_(s), split_below_(s.max_split_size ? s.max_split_size : no_limit) {
    if (!s.expandable_segments) return;
    for (bool small : {true, false}) {
      pieces_[end_] = {address_space, true, small, ++segments_, false, 0};
      end_ += address_space;
    }
  }

  // The address; -1: out of memory.
  int64_t take(int64_t bytes) {
    const int64_t size = std::max(least, round_up(bytes, least));
    const bool small = size <= small_request;
    auto block = find(size, small);
    if (block == pieces_.end()) block = reserve(size, small);
    if (block == pieces_.end()) return -1;
    const int64_t rest = block->second.bytes - size;
    if (small || s_.expandable_segments ? rest >= least : size < split_below_ && rest > small_request) {
      Piece remainder = block->second;
      remainder.bytes = rest, remainder.free_since = searches_[small];
      block->second.bytes = size;
      pieces_[block->first + size] = remainder;
    }
    block->second.free = false;
    return block->first;
  }

  void release(int64_t address) {
    auto it = pieces_.find(address);
    it->second.free = true, it->second.free_since = searches_[it->second.small];
    join(it);
  }

  const AllocatorUse& use() const { return use_; }

 private:
  struct Piece {
    int64_t bytes = 0;
    bool free = true, small = false;
    int segment = 0;
    bool mapped = true;      // false: address space without memory
    int64_t free_since = 0;  // searches_ of its pool when it became free
  };
  using Pieces = std::map<int64_t, Piece>;

  bool limited() const { return s_.memory > 0; }

  // Best fit among free blocks, or the end.
  Pieces::iterator find(int64_t size, bool small) {
    if (limited() && s_.garbage_collection > 0) ++searches_[small];
    auto best = pieces_.end();
    for (auto it = pieces_.begin(); it != pieces_.end(); ++it) {
      const Piece& p = it->second;
      if (p.free && p.mapped && p.small == small && p.bytes >= size && (best == pieces_.end() || room(it) < room(best)))
        best = it;
    }
    if (best == pieces_.end()) return best;
    const bool oversize = best->second.bytes >= split_below_;
    if (size < split_below_ && oversize) return pieces_.end();
    if (size >= split_below_ && best->second.bytes >= size + medium_segment) return pieces_.end();
    return best;
  }

  // The size for best fit: growing blocks count with all their room.
  int64_t room(Pieces::iterator it) {
    auto next = std::next(it);
    return it->second.bytes + (next != pieces_.end() && !next->second.mapped ? next->second.bytes : 0);
  }

  // New memory for a request, within the limit.
  Pieces::iterator reserve(int64_t size, bool small) {
    if (limited() && s_.garbage_collection > 0) collect();
    auto fits = [&] { return !limited() || reserved_ + needed(size, small) <= s_.memory; };
    if (!fits() && !(return_oversize(size, small) && fits())) {
      return_all();
      ++use_.retries;
    }
    if (!fits()) return pieces_.end();
    return s_.expandable_segments ? expand(size, small) : new_segment(segment_size(size, small), small);
  }

  // New bytes for a request, from the driver.
  int64_t needed(int64_t size, bool small) {
    if (!s_.expandable_segments) return segment_size(size, small);
    int64_t bytes = 0;
    for (auto it = place(size, small); size > 0; ++it) {
      if (!it->second.mapped) bytes += std::min(round_up(size, page(small)), it->second.bytes);
      size -= it->second.bytes;
    }
    return bytes;
  }

  void add_reserved(int64_t bytes) {
    reserved_ += bytes;
    use_.reserved_bytes = std::max(use_.reserved_bytes, reserved_);
  }

  Pieces::iterator new_segment(int64_t bytes, bool small) {
    add_reserved(bytes);
    int64_t address = end_;
    end_ += bytes;
    return pieces_.emplace(address, Piece{bytes, true, small, ++segments_, true, searches_[small]}).first;
  }

  static int64_t page(bool small) { return small ? small_segment : medium_segment; }

  // The lowest free block or unmapped address from which the request has room. The address space
  // always has some.
  Pieces::iterator place(int64_t size, bool small) {
    for (auto it = pieces_.begin();; ++it) {
      if (it->second.mapped || it->second.small != small) continue;
      auto first = it;
      if (it != pieces_.begin() && free_neighbor(std::prev(it), it)) first = std::prev(it);
      int64_t space = 0;
      for (auto p = first; p != pieces_.end() && p->second.free && p->second.segment == first->second.segment; ++p)
        space += p->second.bytes;
      if (space >= size) return first;
    }
  }

  Pieces::iterator expand(int64_t size, bool small) {
    auto block = place(size, small);
    if (!block->second.mapped) block = map(block, std::min(block->second.bytes, size));
    while (block->second.bytes < size) {
      auto next = std::next(block);
      block = map(next, std::min(size - block->second.bytes, next->second.bytes));
    }
    return block;
  }

  // Maps whole pages from the start of an unmapped piece. Returns the free block around them.
  Pieces::iterator map(Pieces::iterator it, int64_t bytes) {
    const bool small = it->second.small;
    const int64_t mapped = std::min(round_up(bytes, page(small)), it->second.bytes);
    if (mapped < it->second.bytes) {
      Piece rest = it->second;
      rest.bytes -= mapped;
      pieces_[it->first + mapped] = rest;
    }
    it->second.bytes = mapped, it->second.mapped = true, it->second.free_since = searches_[small];
    add_reserved(mapped);
    return join(it);
  }

  bool free_neighbor(Pieces::iterator a, Pieces::iterator b) const {
    return a->second.free && b->second.free && a->second.segment == b->second.segment;
  }
  bool joins(Pieces::iterator a, Pieces::iterator b) const {
    return free_neighbor(a, b) && a->second.mapped == b->second.mapped;
  }

  // Joins a free piece with its free neighbors.
  Pieces::iterator join(Pieces::iterator it) {
    const int64_t since = it->second.free_since;
    if (auto next = std::next(it); next != pieces_.end() && joins(it, next))
      it->second.bytes += next->second.bytes, pieces_.erase(next);
    if (it != pieces_.begin() && joins(std::prev(it), it)) {
      auto before = std::prev(it);
      before->second.bytes += it->second.bytes;
      pieces_.erase(it);
      it = before;
    }
    it->second.free_since = since;
    return it;
  }

  // Free, and a whole segment.
  bool unsplit(Pieces::iterator it) const {
    auto next = std::next(it);
    return it->second.free && (next == pieces_.end() || next->second.segment != it->second.segment) &&
           (it == pieces_.begin() || std::prev(it)->second.segment != it->second.segment);
  }

  Pieces::iterator give_back(Pieces::iterator it) {
    reserved_ -= it->second.bytes;
    ++use_.returned;
    return pieces_.erase(it);
  }

  int64_t age(const Piece& p) const { return searches_[p.small] - p.free_since; }

  // Garbage collection: old free blocks of the large pool.
  void collect() {
    if (s_.expandable_segments) return;
    const auto threshold = int64_t(s_.garbage_collection * double(s_.memory));
    const int64_t target = reserved_ - threshold;
    if (target <= 0) return;
    auto candidate = [&](Pieces::iterator it) { return !it->second.small && unsplit(it); };
    int64_t total_age = 0, count = 0, reclaimed = 0;
    for (auto it = pieces_.begin(); it != pieces_.end(); ++it)
      if (candidate(it)) total_age += age(it->second), ++count;
    for (bool freed = true; freed && reclaimed < target && count > 0;) {
      const double average = double(total_age) / double(count);
      freed = false;
      for (auto it = pieces_.begin(); it != pieces_.end();) {
        if (!candidate(it) || double(age(it->second)) < average) {
          ++it;
          continue;
        }
        freed = true, reclaimed += it->second.bytes, total_age -= age(it->second), --count;
        it = give_back(it);
      }
    }
  }

  // Gives back the smallest sufficient oversize block, or several, the largest first.
  bool return_oversize(int64_t size, bool small) {
    if (!s_.max_split_size || s_.expandable_segments) return false;
    const int64_t wanted = std::max(size, s_.max_split_size);
    std::vector<std::pair<int64_t, int64_t>> oversize;  // bytes, address
    for (auto& [address, p] : pieces_)
      if (p.free && p.small == small && p.bytes >= s_.max_split_size) oversize.emplace_back(p.bytes, address);
    std::sort(oversize.begin(), oversize.end());
    auto enough = std::lower_bound(oversize.begin(), oversize.end(), std::pair(wanted, int64_t(0)));
    if (enough != oversize.end()) {
      give_back(pieces_.find(enough->second));
      return true;
    }
    int64_t returned = 0;
    for (auto it = oversize.rbegin(); it != oversize.rend() && returned < wanted; ++it) {
      returned += it->first;
      give_back(pieces_.find(it->second));
    }
    return returned >= wanted;
  }

  void return_all() {
    for (auto it = pieces_.begin(); it != pieces_.end();)
      if (s_.expandable_segments)
        it = std::next(unmap(it));
      else if (unsplit(it))
        it = give_back(it);
      else
        ++it;
  }

  // Takes the whole pages out of a free block. Returns the last piece made of it.
  Pieces::iterator unmap(Pieces::iterator it) {
    const Piece p = it->second;
    if (!p.free || !p.mapped) return it;
    const int64_t page = Allocator::page(p.small);
    const int64_t base = it->first / address_space * address_space, end = it->first + p.bytes;
    const int64_t from = base + round_up(it->first - base, page), to = base + (end - base) / page * page;
    if (from >= to) return it;
    reserved_ -= to - from;
    ++use_.returned;
    if (end > to) pieces_[to] = p, pieces_[to].bytes = end - to;
    Piece hole = p;
    hole.bytes = to - from, hole.mapped = false;
    if (from > it->first) {
      it->second.bytes = from - it->first;
      it = pieces_.emplace(from, hole).first;
    } else {
      it->second = hole;
    }
    it = join(it);
    auto next = std::next(it);
    return end > to ? next : it;
  }

  const AllocatorSettings s_;
  const int64_t split_below_;
  Pieces pieces_;
  AllocatorUse use_;
  int64_t reserved_ = 0, end_ = 0;
  int64_t searches_[2] = {0, 0};  // by pool: large, small
  int segments_ = 0;
};

int64_t whole_mib(const std::string& value) {
  int64_t n = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  constexpr int64_t most = int64_t(1) << 30;
  if (error != std::errc() || end != value.data() + value.size() || n * MiB <= medium_segment || n > most)
    fail_usage(fmt::format("max_split_size_mb is '{}'", printable(value)), "",
               "PyTorch accepts whole numbers above 20, in MiB.");
  return n * MiB;
}

double part(const std::string& value) {
  double x = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
  if (error != std::errc() || end != value.data() + value.size() || !(x > 0 && x < 1))
    fail_usage(fmt::format("garbage_collection_threshold is '{}'", printable(value)), "",
               "PyTorch accepts numbers between 0 and 1.");
  return x;
}

bool truth(const std::string& value) {
  if (value != "True" && value != "False")
    fail_usage(fmt::format("expandable_segments is '{}'", printable(value)), "", "Write True or False.");
  return value == "True";
}

}  // namespace

AllocatorSettings parse_allocator_settings(const std::string& text) {
  AllocatorSettings s;
  if (text == "default") return s;
  for (const std::string& setting : split(text, ',')) {
    const size_t colon = setting.find(':');
    const std::string name = setting.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : setting.substr(colon + 1);
    if (name == "max_split_size_mb")
      s.max_split_size = whole_mib(value);
    else if (name == "garbage_collection_threshold")
      s.garbage_collection = part(value);
    else if (name == "expandable_segments")
      s.expandable_segments = truth(value);
    else
      fail_usage(fmt::format("the model of PyTorch's allocator has no setting '{}'", printable(name)), "",
                 "Settings: max_split_size_mb:N, garbage_collection_threshold:X, expandable_segments:True, "
                 "joined by commas; or default.");
  }
  return s;
}

AllocatorUse replay_allocations(const MemoryPlan& plan, const AllocatorSettings& settings) {
  int last = 0;
  for (auto& b : plan.blocks) last = std::max(last, b.last);
  std::vector<std::vector<const Block*>> begin(size_t(last) + 1);
  std::vector<std::vector<int64_t>> end(size_t(last) + 1);
  for (auto& b : plan.blocks) begin[size_t(b.first)].push_back(&b);
  Allocator allocator(settings);
  for (size_t i = 0; i < begin.size(); ++i) {
    for (const Block* b : begin[i]) {
      const int64_t address = allocator.take(b->bytes);
      if (address < 0) {
        AllocatorUse use = allocator.use();
        use.out_of_memory = true;
        return use;
      }
      end[size_t(b->last)].push_back(address);
    }
    for (int64_t address : end[i]) allocator.release(address);
  }
  return allocator.use();
}

int64_t least_memory(const MemoryPlan& plan, AllocatorSettings settings) {
  settings.memory = 0;
  int64_t enough = round_up(replay_allocations(plan, settings).reserved_bytes, large_rounding) + medium_segment;
  auto runs = [&](int64_t memory) {
    settings.memory = memory;
    return !replay_allocations(plan, settings).out_of_memory;
  };
  while (!runs(enough)) enough *= 2;  // returned blocks can leave worse fits
  int64_t less = 0;
  while (enough - less > large_rounding) {
    const int64_t middle = round_up(less + (enough - less) / 2, large_rounding);
    (runs(middle) ? enough : less) = middle;
  }
  return enough;
}

}  // namespace crest::lab
