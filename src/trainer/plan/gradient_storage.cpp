#include "plan/gradient_storage.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

namespace {

bool is_gradient_storage(const Program& p, ValueId v) {
  const Value& value = p.at(v);
  return value.role == Role::gradient && value.lifetime == Lifetime::step && value.layout.storage == v;
}

// A named range of a storage.
struct Piece {
  int64_t begin, end;
  std::string name;
};

// The byte range of a value's elements in its storage.
Piece extent(const Value& v) {
  int64_t last = 0;
  for (int d = 0; d < v.shape.rank(); ++d) last += std::max<int64_t>(v.shape[d] - 1, 0) * v.layout.strides[d];
  auto size = int64_t(size_of(v.dtype));
  return {v.layout.offset * size, (v.layout.offset + last + 1) * size, v.name};
}

bool trains(const CompiledProgram& c) { return c.spec.kind == ProgramKind::train; }

// A storage's tensors in all Programs with gradients, in order, with overlapping views merged. An
// update may cut a storage differently (passes/offload.cpp).
std::vector<Piece> pieces_of(const std::vector<CompiledProgram>& programs, const PersistentBlock& storage) {
  std::vector<Piece> all;
  bool any_trains = std::any_of(programs.begin(), programs.end(), trains);
  for (auto& c : programs) {
    if (any_trains && !trains(c)) continue;
    for (size_t v = 0; v < c.program.values.size(); ++v) {
      const Value& value = c.program.values[v];
      if (value.layout.storage != ValueId(v) && c.program.at(value.layout.storage).name == storage.name)
        all.push_back(extent(value));
    }
  }
  if (all.empty()) return {{0, storage.bytes, storage.name}};
  std::stable_sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  std::vector<Piece> merged;
  for (auto& p : all)
    if (merged.empty() || p.begin >= merged.back().end)
      merged.push_back(p);
    else if (p.begin == merged.back().begin && p.end >= merged.back().end)
      merged.back() = p;  // a later version: the last is the parameter's gradient
    else
      merged.back().end = std::max(merged.back().end, p.end);
  return merged;
}

// The first and last use of each piece, by instruction; -1: none.
std::vector<std::pair<int, int>> touches(const Program& p, ValueId root, const std::vector<Piece>& pieces,
                                         const std::vector<int>& ends) {
  std::vector<std::pair<int, int>> out(pieces.size(), {-1, -1});
  auto touch = [&](ValueId v, int i) {
    if (v == no_value || p.at(v).layout.storage != root) return;
    Piece x = extent(p.at(v));
    auto at = v == root ? pieces.begin()
                        : std::upper_bound(pieces.begin(), pieces.end(), x.begin,
                                           [](int64_t begin, const Piece& q) { return begin < q.end; });
    for (; at != pieces.end() && (v == root || at->begin < x.end); ++at) {
      auto& [first, last] = out[size_t(at - pieces.begin())];
      first = first < 0 ? i : first;
      last = std::max(last, ends[size_t(i)]);
    }
  };
  for (int i = 0; i < int(p.code.size()); ++i) {
    for (ValueId v : p.code[size_t(i)].in) touch(v, i);
    for (ValueId v : p.code[size_t(i)].out) touch(v, i);
  }
  return out;
}

}  // namespace

// Whether a Program reads what is in a storage when it starts.
static bool reads_earlier(const Program& p, ValueId root) {
  auto has = [&](const std::vector<ValueId>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](ValueId v) { return v != no_value && p.at(v).layout.storage == root; });
  };
  for (const Instr& instr : p.code)
    if (has(instr.in) || has(instr.out)) return has(instr.in);
  return false;
}

// Whether the last micro step alone has a storage, and writes it before it reads it.
static bool belongs_to_last(const std::vector<CompiledProgram>& programs, const std::string& storage) {
  bool found = false;
  for (auto& c : programs) {
    const ValueId root = trains(c) ? c.program.find(storage) : no_value;
    if (root == no_value) continue;
    if (!c.spec.last || reads_earlier(c.program, root)) return false;
    found = true;
  }
  return found;
}

std::vector<PersistentBlock> gradient_storages(const std::vector<CompiledProgram>& programs, int64_t micro_steps) {
  std::vector<PersistentBlock> storages;
  int64_t end = 0;
  for (auto& c : programs) {
    for (size_t v = 0; v < c.program.values.size(); ++v) {
      const Value& value = c.program.values[v];
      if (!is_gradient_storage(c.program, ValueId(v))) continue;
      if (micro_steps > 1 && !belongs_to_last(programs, value.name)) continue;
      auto known = std::find_if(storages.begin(), storages.end(), [&](auto& b) { return b.name == value.name; });
      if (known != storages.end()) {
        if (known->bytes != value.storage_bytes())
          fail_internal(fmt::format("%{} has {} bytes in one program and {} in another", value.name, known->bytes,
                                    value.storage_bytes()));
        continue;
      }
      storages.push_back({value.name, end, value.storage_bytes(), Category::gradients});
      end += (value.storage_bytes() + 255) / 256 * 256;
    }
  }
  return storages;
}

// Whether some Program receives another's values through this storage. Shards of gradients
// (passes/shard.cpp) replace whole ones.
static bool is_handed_on(const std::vector<CompiledProgram>& programs, const PersistentBlock& storage) {
  return std::any_of(programs.begin(), programs.end(), [&](auto& c) {
    if (c.spec.kind == ProgramKind::train) return false;
    ValueId root = c.program.find(storage.name);
    return root != no_value && std::any_of(c.program.code.begin(), c.program.code.end(), [&](auto& instr) {
             return std::any_of(instr.in.begin(), instr.in.end(),
                                [&](ValueId v) { return v != no_value && c.program.at(v).layout.storage == root; });
           });
  });
}

static bool has_update(const std::vector<CompiledProgram>& programs) {
  return std::any_of(programs.begin(), programs.end(), [](auto& c) { return c.spec.kind == ProgramKind::update; });
}

std::vector<std::vector<Block>> gradient_blocks(const std::vector<CompiledProgram>& programs,
                                                const std::vector<PersistentBlock>& storages) {
  std::vector<std::vector<Block>> out(programs.size());
  std::vector<std::vector<int>> ends;
  for (auto& c : programs) ends.push_back(ends_of_use(c.program));
  for (auto& storage : storages) {
    std::vector<Piece> pieces = pieces_of(programs, storage);
    const bool handed_on = is_handed_on(programs, storage) || !has_update(programs);
    for (size_t p = 0; p < programs.size(); ++p) {
      const Program& program = programs[p].program;
      int end = std::max(int(program.code.size()) - 1, 0);
      auto add = [&](const std::string& name, ValueId root, int64_t from, int64_t to, int first, int last) {
        if (to > from)
          out[p].push_back({name, root, storage.offset + from, to - from, first, last, Category::gradients});
      };
      ValueId root = program.find(storage.name);
      auto when = root == no_value ? std::vector<std::pair<int, int>>() : touches(program, root, pieces, ends[p]);
      int64_t before = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        add("between tensors of " + storage.name, no_value, before, pieces[i].begin, 0, end);
        before = pieces[i].end;
        if (root == no_value) continue;
        auto [first, last] = when[i];
        bool makes = programs[p].spec.kind == ProgramKind::train && first >= 0, gets = !makes && last >= 0;
        if (!handed_on && !makes) continue;
        add(pieces[i].name, root, pieces[i].begin, pieces[i].end, makes ? first : 0, gets || !handed_on ? last : end);
      }
      add("between tensors of " + storage.name, no_value, before, storage.bytes, 0, end);
    }
  }
  return out;
}

}  // namespace crest
