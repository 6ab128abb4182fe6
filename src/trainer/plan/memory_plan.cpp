#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/round_up.h"
#include "core/text.h"
#include "program/op.h"
#include "program/waits.h"

namespace crest {

std::string_view name(Category c) {
  static constexpr std::string_view n[] = {"weights",      "gradients", "optimizer_state",
                                           "activations",  "temporary", "workspace",
                                           "comm_buffers", "kv_cache",  "library_context"};
  return n[size_t(c)];
}

int64_t total(const CategoryBytes& c) { return std::accumulate(c.begin(), c.end(), int64_t(0)); }

namespace {

constexpr int64_t alignment = 256;  // bytes, as guaranteed by GPU allocators

int64_t aligned(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), alignment); }

using Interval = std::pair<int64_t, int64_t>;

// A sorted list of disjoint intervals with holes between them.
class Intervals {
 public:
  // Returns false if the range was already covered.
  bool add(Interval added) {
    auto first =
        std::lower_bound(list_.begin(), list_.end(), added, [](auto& a, auto& b) { return a.second < b.first; });
    if (first != list_.end() && first->first <= added.first && added.second <= first->second) return false;
    auto last = first;
    for (; last != list_.end() && last->first <= added.second; ++last) {
      added.first = std::min(added.first, last->first);
      added.second = std::max(added.second, last->second);
    }
    if (first == last)
      list_.insert(first, added);
    else
      *first = added, list_.erase(first + 1, last);
    return true;
  }
  void append_to(std::vector<Interval>& all) const { all.insert(all.end(), list_.begin(), list_.end()); }
  void clear() { list_.clear(); }

 private:
  std::vector<Interval> list_;
};

// Addresses in use over time: a segment tree over buckets of instructions. A node has the addresses
// of blocks alive during all of its instructions, and of blocks alive during any of them. Saved
// activations grow with depth but are adjacent, so both sets are a few intervals. A leaf also lists
// blocks with a start or end inside its bucket.
class TakenAddresses {
 public:
  explicit TakenAddresses(size_t instructions)
      : leaves_(std::bit_ceil(instructions / bucket + 1)),
        all_through_(2 * leaves_),
        at_any_(2 * leaves_),
        partly_(leaves_) {}

  void clear() {
    for (auto* nodes : {&all_through_, &at_any_})
      for (Intervals& n : *nodes) n.clear();
    for (auto& list : partly_) list.clear();
  }

  // Covers instructions first to last.
  void add(int first, int last, Interval addresses) {
    size_t from = size_t(first) / bucket, to = size_t(last) / bucket;
    for (size_t leaf : {from, to}) {
      partly_[leaf].push_back({first, last, addresses});
      add_upwards(leaf + leaves_, addresses);
      if (from == to) return;
    }
    for_nodes(from + 1, to, [&](size_t node) {
      all_through_[node].add(addresses);
      add_upwards(node, addresses);
    });
  }

  // The lowest address among the smallest sufficient holes.
  int64_t best_fit(int first, int last, int64_t bytes) {
    size_t from = size_t(first) / bucket, to = size_t(last) / bucket;
    taken_.clear();
    for (size_t leaf : {from, to}) {
      for (const Piece& p : partly_[leaf])
        if (p.first <= last && first <= p.last) taken_.push_back(p.addresses);
      if (from == to) break;
    }
    for_nodes(from + 1, to, [&](size_t node) { at_any_[node].append_to(taken_); });
    // A block alive throughout an ancestor of the inner nodes is also alive at one of the ends.
    size_t low = from + leaves_, high = to + leaves_;
    for (; low != high; low /= 2, high /= 2) all_through_[low].append_to(taken_), all_through_[high].append_to(taken_);
    for (; low > 0; low /= 2) all_through_[low].append_to(taken_);
    std::sort(taken_.begin(), taken_.end());
    int64_t end = 0, best = -1, best_hole = 0;
    for (auto [begin, behind] : taken_) {
      int64_t hole = begin - end;
      if (hole >= bytes && (best < 0 || hole < best_hole)) best = end, best_hole = hole;
      end = std::max(end, behind);
    }
    return best >= 0 ? best : end;
  }

 private:
  struct Piece {
    int first, last;
    Interval addresses;
  };

  // Ancestors include everything in their nodes.
  void add_upwards(size_t node, Interval addresses) {
    while (node > 0 && at_any_[node].add(addresses)) node /= 2;
  }

  // Visits the largest nodes covering leaves `low` to `high` (exclusive).
  template <class Visit>
  void for_nodes(size_t low, size_t high, Visit visit) const {
    for (low += leaves_, high += leaves_; low < high; low /= 2, high /= 2) {
      if (low % 2) visit(low++);
      if (high % 2) visit(--high);
    }
  }

  static constexpr size_t bucket = 16;
  size_t leaves_;  // node 1 is the root, the children of n are 2n and 2n + 1
  std::vector<Intervals> all_through_, at_any_;
  std::vector<std::vector<Piece>> partly_;  // by leaf
  std::vector<Interval> taken_;
};

constexpr int gradients_in_flight = 3, activations_in_flight = 2, products_in_flight = 4;

// Whether it copies to host memory that is not an optimizer's state.
bool sends_activation(const Instr& instr) {
  return std::string_view(instr.op->name) == "copy_out" && (instr.in.size() == 1 || instr.in[1] == no_value);
}

// Limits the tensors waiting to be sent, and the inputs of gradients on their own stream. The
// compute stream never waits for them, or only much later, so they would occupy memory until then.
// Whatever takes their memory waits instead. After the last ones, copies come back.
int last_in_flight(const Program& p, size_t i, int most) {
  int sent = 0;
  const bool to_host = p.code[i].op->crosses_memories();
  for (size_t k = i + 1; k < p.code.size(); ++k)
    if ((p.code[k].stream == p.code[i].stream || (to_host && p.code[k].op->crosses_memories())) && ++sent == most)
      return int(k);
  return int(p.code.size()) - 1;
}

class Planner {
 public:
  Planner(const Program& p, const std::vector<int64_t>& workspace, const std::vector<Block>& fixed)
      : p_(p), workspace_(workspace), fixed_(fixed.size()), taken_(p.code.size()) {
    plan_.blocks = fixed;
    for (auto& instr : p.code) {
      std::string_view op = instr.op->name;
      if (op == "reduce_scatter") whole_.insert(instr.in[0]);
      if (op == "all_gather") whole_.insert(instr.out[0]);
    }
  }

  MemoryPlan run() {
    find_lifetimes();
    overlay();
    make_blocks();
    find_peak();
    std::vector<int64_t> best;  // offsets
    int64_t least = 0;
    auto wasted = [&] { return best.empty() ? 1 : double(least) / double(plan_.live_peak) - 1; };
    for (Before before : {longest_first, largest_first, most_first}) {
      order_by(before);
      urgent_.assign(plan_.blocks.size(), 0);
      // Blocks without a place below the peak come earlier in the next attempt ("Squeaky Wheel"
      // Optimization, Joslin and Clements, 1999), while much memory is wasted.
      for (int round = 0; round < (wasted() > 0.02 ? 16 : 3); ++round) {
        place();
        if (best.empty() || plan_.bytes < least) {
          least = plan_.bytes;
          best.clear();
          for (auto& b : plan_.blocks) best.push_back(b.offset);
        }
        if (plan_.blocks.empty() || wasted() <= 0.01) return with(best, least);
        for (size_t b = fixed_; b < plan_.blocks.size(); ++b)
          urgent_[b] += addresses(plan_.blocks[b]).second > plan_.live_peak;
      }
    }
    return with(best, least);
  }

 private:
  MemoryPlan with(const std::vector<int64_t>& offsets, int64_t bytes) {
    for (size_t b = 0; b < offsets.size(); ++b) plan_.blocks[b].offset = offsets[b];
    plan_.bytes = bytes;
    return std::move(plan_);
  }

  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }
  bool transient(ValueId root) const {
    return p_.at(root).lifetime == Lifetime::micro_step && p_.at(root).space == MemorySpace::device;
  }

  void touch(ValueId v, int i) {
    if (v == no_value) return;
    size_t s = size_t(storage(v));
    first_[s] = first_[s] < 0 ? i : std::min(first_[s], i);
    last_[s] = std::max(last_[s], i);
  }

  void find_lifetimes() {
    int n = int(p_.code.size());
    first_.assign(p_.values.size(), -1);
    last_.assign(p_.values.size(), -1);
    for (int i = 0; i < n; ++i) {
      for (ValueId v : p_.code[size_t(i)].in) touch(v, i);
      for (ValueId v : p_.code[size_t(i)].out) touch(v, i);
    }
    for (ValueId v : p_.inputs) touch(v, 0);  // the host writes inputs before the first instruction
    kept_.assign(p_.values.size(), false);
    for (ValueId v : p_.outputs) {
      touch(v, std::max(n - 1, 0));
      if (p_.at(v).role != Role::output) kept_[size_t(storage(v))] = true;
    }
    end_ = ends_of_use(p_);
    for (int i = 0; i < n; ++i)
      for (auto* list : {&p_.code[size_t(i)].in, &p_.code[size_t(i)].out})
        for (ValueId v : *list) touch(v, end_[size_t(i)]);
  }

  // Whether element i has the same place in both storages.
  static bool same_places(const Value& a, const Value& b) {
    if (a.storage_bytes() != b.storage_bytes()) return false;
    return (a.contiguous() && b.contiguous()) || a.layout.strides == b.layout.strides;
  }

  // An output may reuse an input's memory at the input's last use.
  void overlay() {
    same_as_.resize(p_.values.size());
    std::iota(same_as_.begin(), same_as_.end(), 0);
    for (int i = 0; i < int(p_.code.size()); ++i) {
      const Instr& instr = p_.code[size_t(i)];
      if (instr.stream != Stream::compute) continue;
      for (auto& may : instr.op->may_overlay) {
        if (size_t(may.out) >= instr.out.size() || size_t(may.in) >= instr.in.size()) continue;
        ValueId o = instr.out[size_t(may.out)], v = instr.in[size_t(may.in)];
        if (v == no_value || storage(o) != o || storage(v) != v || !transient(o) || !transient(v)) continue;
        size_t root = size_t(same_as_[size_t(v)]);
        if (same_as_[size_t(o)] != o || last_[root] != i || !same_places(p_.at(o), p_.at(v)) || first_[size_t(o)] != i)
          continue;
        if (p_.at(ValueId(root)).storage_bytes() != p_.at(o).storage_bytes()) continue;
        same_as_[size_t(o)] = ValueId(root);
        last_[root] = std::max(last_[root], last_[size_t(o)]);
        kept_[root] = kept_[root] || kept_[size_t(o)];
      }
    }
  }

  bool communicates(int i) const {
    return size_t(i) < p_.code.size() && p_.code[size_t(i)].op->op_class == OpClass::communication;
  }

  Category category(ValueId root) const {
    const Value& v = p_.at(root);
    if (whole_.count(root)) return Category::comm_buffers;
    if (v.role == Role::gradient) return Category::gradients;
    if (v.role == Role::cache) return Category::kv_cache;
    if (v.role == Role::activation && communicates(first_[size_t(root)])) return Category::comm_buffers;
    Phase made = p_.code.empty() ? Phase::forward : p_.code[size_t(first_[size_t(root)])].phase;
    Phase used = p_.code.empty() ? Phase::forward : p_.code[size_t(last_[size_t(root)])].phase;
    bool later = used != Phase::forward || kept_[size_t(root)];
    return made == Phase::forward && later ? Category::activations : Category::temporary;
  }

  void make_blocks() {
    plan_.block_of_value.assign(p_.values.size(), -1);
    plan_.block_of_instr.assign(p_.code.size(), -1);
    for (size_t v = 0; v < p_.values.size(); ++v) {
      auto root = ValueId(v);
      if (storage(root) != root || !transient(root) || first_[v] < 0 || same_as_[v] != root) continue;
      plan_.block_of_value[v] = int(plan_.blocks.size());
      plan_.blocks.push_back(
          {p_.at(root).name, root, 0, aligned(p_.at(root).storage_bytes()), first_[v], last_[v], category(root)});
    }
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (same_as_[v] != ValueId(v)) plan_.block_of_value[v] = plan_.block_of_value[size_t(same_as_[v])];
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (storage(ValueId(v)) != ValueId(v))
        plan_.block_of_value[v] = plan_.block_of_value[size_t(storage(ValueId(v)))];
    const int shared = make_shared_workspace();
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (workspace_[i] <= 0) continue;
      if (p_.code[i].stream == Stream::gradients) {
        plan_.block_of_instr[i] = shared;
        continue;
      }
      plan_.block_of_instr[i] = int(plan_.blocks.size());
      plan_.blocks.push_back({fmt::format("workspace of {}", p_.code[i].op->name), no_value, 0, aligned(workspace_[i]),
                              int(i), end_[i], communicates(int(i)) ? Category::comm_buffers : Category::workspace});
    }
  }

  // The workspace of all instructions on the stream of gradients, since they run one after the
  // other; -1: they need none. One for each would be alive as long as their inputs.
  int make_shared_workspace() {
    Block all{"workspace of gradients", no_value, 0, 0, -1, 0, Category::workspace};
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (p_.code[i].stream != Stream::gradients || workspace_[i] <= 0) continue;
      if (all.first < 0) all.first = int(i);
      all.bytes = std::max(all.bytes, aligned(workspace_[i])), all.last = std::max(all.last, end_[i]);
    }
    if (all.bytes == 0) return -1;
    plan_.blocks.push_back(all);
    return int(plan_.blocks.size()) - 1;
  }

  using Before = bool (*)(const Block&, const Block&);

  static bool longest_first(const Block& x, const Block& y) {
    int lx = x.last - x.first, ly = y.last - y.first;
    return lx != ly ? lx > ly : x.bytes > y.bytes;
  }
  static bool largest_first(const Block& x, const Block& y) {
    return x.bytes != y.bytes ? x.bytes > y.bytes : x.last - x.first > y.last - y.first;
  }
  static bool most_first(const Block& x, const Block& y) {
    return double(x.bytes) * (x.last - x.first + 1) > double(y.bytes) * (y.last - y.first + 1);
  }

  // Places blocks in order, saved activations (long-lived) first. If this wastes too much because
  // the peak is among short-lived blocks, tries the largest first, or the most bytes times
  // instructions. Each block goes to the best-fitting hole among the placed blocks alive with it.
  void place() {
    taken_.clear();
    plan_.bytes = 0;
    for (size_t b = 0; b < fixed_; ++b) take(plan_.blocks[b]);
    std::vector<int> order = order_;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return urgent_[size_t(a)] > urgent_[size_t(b)]; });
    for (int b : order) {
      Block& block = plan_.blocks[size_t(b)];
      block.offset = taken_.best_fit(block.first, block.last, block.bytes);
      take(block);
    }
  }

  void order_by(Before before) {
    order_.resize(plan_.blocks.size() - fixed_);
    std::iota(order_.begin(), order_.end(), int(fixed_));
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return before(plan_.blocks[size_t(a)], plan_.blocks[size_t(b)]); });
  }

  // The range occupied by a block, in units of alignment (a fixed block may start inside one).
  static Interval addresses(const Block& b) { return {b.offset / alignment * alignment, aligned(b.offset + b.bytes)}; }

  // Adds a block with a known address.
  void take(const Block& block) {
    plan_.bytes = std::max(plan_.bytes, addresses(block).second);
    taken_.add(block.first, block.last, addresses(block));
  }

  void find_peak() {
    if (p_.code.empty()) return;
    std::vector<CategoryBytes> change(p_.code.size() + 1, CategoryBytes{});
    for (auto& b : plan_.blocks) {
      change[size_t(b.first)][size_t(b.category)] += b.bytes;
      change[size_t(b.last) + 1][size_t(b.category)] -= b.bytes;
    }
    CategoryBytes live{};
    for (size_t i = 0; i < p_.code.size(); ++i) {
      for (int c = 0; c < category_count; ++c) live[size_t(c)] += change[i][size_t(c)];
      if (total(live) > plan_.live_peak) plan_.live_peak = total(live), plan_.peak_instr = int(i), plan_.at_peak = live;
    }
  }

  const Program& p_;
  const std::vector<int64_t>& workspace_;
  size_t fixed_;             // the plan starts with these blocks
  std::set<ValueId> whole_;  // groups sharded over the ranks
  std::vector<int> order_;   // the other blocks
  std::vector<int> urgent_;  // by block: how often it found no hole below the peak
  MemoryPlan plan_;
  std::vector<int> end_;           // by instruction: when it has certainly finished
  std::vector<int> first_, last_;  // by storage
  std::vector<bool> kept_;         // by storage: a later Program reads it, the host does not
  std::vector<ValueId> same_as_;
  TakenAddresses taken_;
};

}  // namespace

// Waits derived from addresses come later and can only add to the Program's own.
std::vector<int> ends_of_use(const Program& p) {
  std::vector<int> ends(p.code.size());
  std::iota(ends.begin(), ends.end(), 0);
  if (!has_several_streams(p)) return ends;
  HappensBefore ordered(p, plan_waits(p, accesses_by_storage(p)));
  for (size_t i = 0; i < ends.size(); ++i) {
    if (p.code[i].stream == Stream::compute) continue;
    int after = ordered.first_after(int(i), Stream::compute);
    ends[i] = after < 0 ? int(ends.size()) - 1 : after;
    if (std::string_view(p.code[i].op->name) == "reduce_scatter")
      ends[i] = std::min(ends[i], last_in_flight(p, i, gradients_in_flight));
    if (sends_activation(p.code[i])) ends[i] = std::min(ends[i], last_in_flight(p, i, activations_in_flight));
    if (p.code[i].stream == Stream::gradients) ends[i] = std::min(ends[i], last_in_flight(p, i, products_in_flight));
  }
  return ends;
}

MemoryPlan plan_memory(const Program& program, const std::vector<int64_t>& workspace, const std::vector<Block>& fixed) {
  return Planner(program, workspace, fixed).run();
}

// All are away between the halves, so no two share memory.
MemoryPlan plan_host_memory(const Program& program) {
  MemoryPlan plan;
  plan.block_of_value.assign(program.values.size(), -1);
  const int last = int(program.code.size()) - 1;
  for (const Instr& instr : program.code)
    for (ValueId v : instr.out) {
      const Value& value = program.at(v);
      const bool copy = value.space == MemorySpace::host && value.lifetime == Lifetime::micro_step;
      if (!copy || value.layout.storage != v) continue;
      plan.block_of_value[size_t(v)] = int(plan.blocks.size());
      plan.blocks.push_back(
          {value.name, v, plan.bytes, aligned(value.storage_bytes()), 0, last, Category::activations});
      plan.bytes += plan.blocks.back().bytes;
    }
  plan.live_peak = plan.bytes;
  return plan;
}

void verify(const MemoryPlan& plan) {
  // Sweeps over time with live blocks ordered by address. Neighbors must not overlap.
  struct Event {
    int time, block;
    bool start;
  };
  std::vector<Event> events;
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    events.push_back({plan.blocks[b].first, int(b), true});
    events.push_back({plan.blocks[b].last + 1, int(b), false});
  }
  std::sort(events.begin(), events.end(),
            [](auto& a, auto& b) { return a.time != b.time ? a.time < b.time : a.start < b.start; });
  std::map<int64_t, int> live;
  for (auto& e : events) {
    const Block& b = plan.blocks[size_t(e.block)];
    if (!e.start) {
      live.erase(b.offset);
      continue;
    }
    auto [it, added] = live.emplace(b.offset, e.block);
    auto clash = [&](int other) {
      const Block& o = plan.blocks[size_t(other)];
      fail_internal(fmt::format("memory plan: '{}' and '{}' overlap at instruction {}", b.name, o.name, e.time));
    };
    if (!added) clash(it->second);
    if (it != live.begin()) {
      auto before = std::prev(it);
      if (before->first + plan.blocks[size_t(before->second)].bytes > b.offset) clash(before->second);
    }
    if (auto after = std::next(it); after != live.end() && b.offset + b.bytes > after->first) clash(after->second);
    if (b.offset < 0 || b.offset + b.bytes > plan.bytes)
      fail_internal("memory plan: '" + b.name + "' leaves the arena");
  }
}

std::string print(const MemoryPlan& plan, const Program& program, int rows) {
  std::string out =
      fmt::format("transient arena {} (largest live sum {}, fragmentation {:.2f}%)\n", format_bytes(double(plan.bytes)),
                  format_bytes(double(plan.live_peak)),
                  plan.live_peak ? 100.0 * double(plan.bytes - plan.live_peak) / double(plan.live_peak) : 0.0);
  if (plan.peak_instr >= 0) {
    const Instr& i = program.code[size_t(plan.peak_instr)];
    out += fmt::format("peak at instruction {} ({} at {}, {})\n", plan.peak_instr, i.op->name, i.origin.text(),
                       name(i.phase));
  }
  // Workspaces of one operation and size are a row: they are not alive together.
  struct Row {
    Block block;  // first and last: of all
    int count = 1;
  };
  std::vector<Row> list;
  std::map<std::pair<std::string_view, int64_t>, size_t> workspaces;
  for (auto& b : plan.blocks) {
    if (b.storage == no_value && b.category == Category::workspace) {
      auto [it, added] = workspaces.emplace(std::pair(std::string_view(b.name), b.bytes), list.size());
      if (!added) {
        Row& row = list[it->second];
        ++row.count;
        row.block.first = std::min(row.block.first, b.first), row.block.last = std::max(row.block.last, b.last);
        continue;
      }
    }
    list.push_back({b});
  }
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.block.bytes > b.block.bytes; });
  for (int i = 0; i < rows && i < int(list.size()); ++i) {
    const auto& [b, count] = list[size_t(i)];
    out += fmt::format("  {:>12} at {:>12}  instructions {:>5}..{:<5} {:<12} {}{}\n", format_bytes(double(b.bytes)),
                       count > 1 ? "various" : std::to_string(b.offset), b.first, b.last, name(b.category),
                       printable(b.name), count > 1 ? fmt::format(" x {}", count) : "");
  }
  return out;
}

}  // namespace crest
