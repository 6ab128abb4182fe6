#include "compare/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compare/join.h"
#include "core/text.h"

namespace crest {

namespace {

// The instruction with the most bytes of a Program's blocks alive.
struct Peak {
  std::string program;
  int index = -1;
  int64_t bytes = 0;
};

Peak find_peak(const Profile& p) {
  std::map<std::string, std::map<int, int64_t>> changes;
  for (auto& b : p.memory.blocks) {
    changes[b.program][b.first] += b.bytes;
    changes[b.program][b.last + 1] -= b.bytes;
  }
  Peak peak;
  for (auto& [program, points] : changes) {
    int64_t live = 0;
    for (auto& [index, change] : points)
      if (live += change; live > peak.bytes) peak = {program, index, live};
  }
  return peak;
}

const ProfileInstr* instruction(const Profile& p, const std::string& program, int index) {
  for (auto& r : p.instrs)
    if (r.index == index && r.program == program) return &r;
  return nullptr;
}

PeakHolder holder(const Profile& p, const Peak& peak) {
  PeakHolder h;
  h.program = peak.program, h.live_bytes = peak.bytes;
  if (auto r = instruction(p, peak.program, peak.index))
    h.op = r->op, h.phase = r->phase, h.scope = join(r->scopes, "+");
  return h;
}

// The memory of one side for one key.
struct Held {
  int64_t bytes = 0, largest = 0;
  int blocks = 0;
  std::string type;  // of the largest block
};

struct Entry {
  std::string role, category;
  Held side[2];
};

class Blocks {
 public:
  void add(const ComparedSide& s, int side) {
    const ProfileMemory& m = s.profile.memory;
    int64_t sum = 0;
    for (auto& b : m.persistent) sum += b.bytes, hold(b.name, b.category, b.bytes, "", side);
    Peak peak = find_peak(s.profile);
    for (auto& b : m.blocks) {
      if (b.program != peak.program || b.first > peak.index || b.last < peak.index) continue;
      sum += b.bytes;
      hold(key_of(b), b.category, b.bytes, type_of(s.profile, b), side);
    }
    // Gaps between blocks are shown as temporary, as in every memory table.
    if (m.planned_bytes > sum) hold("gaps between blocks", "temporary", m.planned_bytes - sum, "", side);
  }
  std::vector<Entry> take() { return std::move(list_); }

 private:
  static std::string key_of(const ProfileBlock& b) {
    if (b.category == "workspace") return "workspace";
    std::string role = role_of(b.scope.substr(0, b.scope.find('+')));
    return role.empty() ? b.name : role;
  }
  // A block is the first result of the instruction writing it, if the sizes match.
  static std::string type_of(const Profile& p, const ProfileBlock& b) {
    auto r = instruction(p, b.program, b.first);
    if (!r) return "";
    int64_t elements = 1;
    for (int64_t d : dimensions(r->type)) elements *= d;
    bool fits = elements <= b.bytes && b.bytes < 8 * elements + 4096;
    return fits ? r->type : "";
  }
  void hold(const std::string& role, const std::string& category, int64_t bytes, const std::string& type, int side) {
    auto [it, added] = index_.emplace(std::pair{role, category}, list_.size());
    if (added) list_.push_back({role, category, {}});
    Held& h = list_[it->second].side[side];
    h.bytes += bytes, ++h.blocks;
    if (bytes > h.largest) h.largest = bytes, h.type = type;
  }

  std::map<std::pair<std::string, std::string>, size_t> index_;
  std::vector<Entry> list_;
};

MemoryCause memory_cause_of(const Entry& e, const ComparedSide& a, const ComparedSide& b) {
  MemoryCause c;
  c.label = role_label({e.role}), c.category = e.category;
  c.a = e.side[0].bytes, c.b = e.side[1].bytes;
  c.blocks_a = e.side[0].blocks, c.blocks_b = e.side[1].blocks;
  c.type_a = e.side[0].type, c.type_b = e.side[1].type;
  c.quadratic = c.a > c.b ? is_quadratic(c.type_a, a) : is_quadratic(c.type_b, b);
  return c;
}

void by_block(RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  c.peak_a = holder(a.profile, find_peak(a.profile));
  c.peak_b = holder(b.profile, find_peak(b.profile));
  Blocks blocks;
  blocks.add(a, 0), blocks.add(b, 1);
  std::map<std::string, MemoryRow> categories;
  for (auto& e : blocks.take()) {
    MemoryRow& row = categories[e.category];
    row.a += e.side[0].bytes, row.b += e.side[1].bytes;
    if (e.side[0].bytes != e.side[1].bytes) c.memory_causes.push_back(memory_cause_of(e, a, b));
  }
  for (auto& [category, row] : categories) c.memory.push_back({category, row.a, row.b});
  std::stable_sort(c.memory_causes.begin(), c.memory_causes.end(),
                   [](auto& x, auto& y) { return std::abs(x.b - x.a) > std::abs(y.b - y.a); });
}

// From a bench row or a plan.
const Json* categories_of(const ComparedSide& s) {
  if (const Json* memory = member(s.record->result, "memory"))
    if (const Json* list = member(*memory, "by_category")) return list;
  auto plan = s.record->documents.find("plan");
  if (plan == s.record->documents.end()) return nullptr;
  const Json* memory = member(plan->second, "memory");
  return memory ? member(*memory, "by_category") : nullptr;
}

void by_category(RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  const Json *x = categories_of(a), *y = categories_of(b);
  if (!x || !y) return;
  for (int i = 0; i < category_count; ++i) {
    std::string key(name(Category(i)));
    c.memory.push_back({key, int64_t(number(*x, key)), int64_t(number(*y, key))});
  }
}

}  // namespace

void compare_memory(RunComparison& c, const ComparedSide& a, const ComparedSide& b) {
  if (a.profiled && b.profiled && a.profile.memory.planned_bytes > 0 && b.profile.memory.planned_bytes > 0)
    by_block(c, a, b);
  else
    by_category(c, a, b);
  auto order = [](const MemoryRow& row) {
    for (int i = 0; i < category_count; ++i)
      if (row.label == name(Category(i))) return i;
    return category_count;
  };
  std::erase_if(c.memory, [](auto& row) { return row.a == 0 && row.b == 0; });
  std::stable_sort(c.memory.begin(), c.memory.end(), [&](auto& x, auto& y) { return order(x) < order(y); });
}

}  // namespace crest
