#include "traces/memory_events.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace crest {

namespace {

struct Span {
  double start = 0, end = 0;
};

using Rows = std::map<int, int>;  // index in the Program -> row of Profile::instrs

// The time of each instruction of each call.
std::map<std::pair<int, int>, Span> spans(const Profile& p) {
  std::map<std::pair<int, int>, Span> out;
  for (auto& i : p.intervals) {
    if (i.instr < 0) continue;
    auto [at, is_new] = out.try_emplace({i.call, i.instr}, Span{i.start_ms, i.start_ms + i.ms});
    if (is_new) continue;
    at->second.start = std::min(at->second.start, i.start_ms);
    at->second.end = std::max(at->second.end, i.start_ms + i.ms);
  }
  return out;
}

// Changes of the transient arena in one Program: allocations before an instruction, frees after it.
struct Change {
  int index;
  bool free;
  int block;
  bool operator<(const Change& o) const { return std::tie(index, free, block) < std::tie(o.index, o.free, o.block); }
};

std::map<std::string, std::vector<Change>> changes(const Profile& p) {
  std::map<std::string, std::vector<Change>> out;
  for (int b = 0; b < int(p.memory.blocks.size()); ++b) {
    const ProfileBlock& block = p.memory.blocks[size_t(b)];
    if (block.bytes <= 0) continue;
    auto& list = out[block.program];
    list.push_back({block.first, false, b});
    list.push_back({std::max(block.first, block.last), true, b});
  }
  for (auto& [program, list] : out) std::sort(list.begin(), list.end());
  return out;
}

}  // namespace

int64_t transient_address(const Profile& p) {
  constexpr int64_t page = int64_t(2) << 20;
  int64_t end = p.memory.persistent_bytes;
  for (auto& b : p.memory.persistent) end = std::max(end, b.offset + b.bytes);
  return persistent_address + (end + page - 1) / page * page;
}

int64_t address(const Profile& p, const MemoryEvent& e) {
  return e.block < 0 ? persistent_address + p.memory.persistent[size_t(e.persistent)].offset
                     : transient_address(p) + p.memory.blocks[size_t(e.block)].offset;
}

int64_t bytes(const Profile& p, const MemoryEvent& e) {
  return e.block < 0 ? p.memory.persistent[size_t(e.persistent)].bytes : p.memory.blocks[size_t(e.block)].bytes;
}

std::vector<MemoryEvent> memory_events(const Profile& p, size_t limit) {
  std::vector<MemoryEvent> out;
  for (int i = 0; i < int(p.memory.persistent.size()); ++i)
    if (p.memory.persistent[size_t(i)].bytes > 0) out.push_back({.persistent = i});

  std::map<std::string, Rows> rows;
  for (int i = 0; i < int(p.instrs.size()); ++i) rows[p.instrs[size_t(i)].program][p.instrs[size_t(i)].index] = i;
  auto by_program = changes(p);
  auto when = spans(p);
  size_t all = out.size();
  for (auto& program : p.calls) all += by_program[program].size();

  std::set<std::string> seen;
  double now = 0;
  for (int call = 0; call < int(p.calls.size()); ++call) {
    const std::string& program = p.calls[size_t(call)];
    if (!seen.insert(program).second && all > limit) continue;
    for (const Change& c : by_program[program]) {
      auto row = rows[program].find(c.index);
      int instr = row == rows[program].end() ? -1 : row->second;
      if (auto at = when.find({call, instr}); at != when.end())
        now = std::max(now, c.free ? at->second.end : at->second.start);
      out.push_back({.alloc = !c.free, .block = c.block, .call = call, .instr = instr, .ms = now});
    }
  }
  return out;
}

}  // namespace crest
