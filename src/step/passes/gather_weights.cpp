#include "passes/gather_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/rewrite.h"
#include "passes/shard.h"

namespace crest {

ValueId add_shard(Program& p, ValueId group, const Copies& copies, bool kept) {
  Builder b(p);
  ValueId shard = declare_shard(b, group, copies);
  for (Value& v : p.values) {
    if (v.layout.storage != group) continue;
    copies.place(v, Placement::absent());
    if (!kept) v.lifetime = Lifetime::micro_step;
  }
  return shard;
}

namespace {

// A group's time in memory: from one gather to the last use before the next.
struct Stretch {
  ValueId group;
  size_t first, last;
};

class GatherWeights {
 public:
  GatherWeights(Program& program, const Copies& copies, bool kept) : p_(program), copies_(copies), kept_(kept) {}

  void run() {
    for (auto& q : p_.params) {
      if (q.borrowed || q.frozen) continue;  // it arrives whole, or is whole on every rank
      ValueId group = p_.at(q.value).layout.storage;
      if (groups_.insert(group).second) all_ += p_.at(group).bytes();
    }
    find_stretches();
    for (ValueId group : groups_) shard_[group] = add_shard(p_, group, copies_, kept_);
    for (Stretch& s : stretches_) gather(s);
    std::vector<Instr> code;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      auto [from, to] = before_.equal_range(i);
      for (auto it = from; it != to; ++it) code.push_back(std::move(it->second));
      code.push_back(std::move(p_.code[i]));
    }
    p_.code = std::move(code);
  }

 private:
  // Small groups (norms and biases, read by every layer) stay from first to last use.
  bool small(ValueId group) const { return 4 * p_.at(group).bytes() < all_ / int64_t(groups_.size()); }

  // A group is freed if two other groups are used between two of its uses. With one in between, it
  // would be gathered again while its memory is needed anyway.
  void find_stretches() {
    std::map<ValueId, size_t> open;              // the latest stretch of a group
    std::map<ValueId, std::set<ValueId>> since;  // other groups used after its last use
    for (size_t i = 0; i < p_.code.size(); ++i) {
      std::set<ValueId> used;
      for (ValueId v : p_.code[i].in)
        if (v != no_value && groups_.count(p_.at(v).layout.storage)) used.insert(p_.at(v).layout.storage);
      for (ValueId group : used) {
        auto it = open.find(group);
        bool again = it != open.end() && (kept_ || small(group) || since[group].size() < 2);
        if (again)
          stretches_[it->second].last = i;
        else
          open[group] = stretches_.size(), stretches_.push_back({group, i, i});
        since[group].clear();
        if (small(group)) continue;
        for (auto& [other, groups] : since)
          if (other != group) groups.insert(group);
      }
    }
  }

  // A group is gathered before the first use of the previous group, so the previous group's work
  // hides the transfer. Kept groups are gathered at the start. Each value has one producer, so
  // later stretches of a group read copies of its tensors.
  void gather(const Stretch& s) {
    size_t at = s.first;
    for (const Stretch& before : stretches_)
      if (!small(before.group) && before.first < s.first) at = before.first;
    if (kept_) at = 0;
    ValueId whole = s.group;
    int number = ++gathers_[s.group];
    if (number > 1) whole = copy(s, whole, number);
    const Instr& user = p_.code[s.first];
    Instr instr;
    instr.op = &op("all_gather");
    instr.in = {shard_.at(s.group)}, instr.out = {whole};
    instr.attrs = copies_.attrs();
    instr.phase = user.phase, instr.stream = Stream::comm, instr.origin = user.origin;
    before_.emplace(at, std::move(instr));
  }

  ValueId copy(const Stretch& s, ValueId whole, int number) {
    std::map<ValueId, ValueId> copies;
    auto copy_of = [&](ValueId v) {
      auto [it, added] = copies.emplace(v, no_value);
      if (!added) return it->second;
      Value value = p_.at(v);
      value.name += fmt::format(".{}", number);
      it->second = ValueId(p_.values.size());
      value.layout.storage = v == whole ? it->second : copies.at(whole);
      p_.values.push_back(std::move(value));
      return it->second;
    };
    copy_of(whole);
    for (size_t i = s.first; i <= s.last; ++i)
      for (ValueId& v : p_.code[i].in)
        if (v != no_value && p_.at(v).layout.storage == whole) v = copy_of(v);
    return copies.at(whole);
  }

  Program& p_;
  const Copies copies_;
  bool kept_;
  std::set<ValueId> groups_;
  int64_t all_ = 0;                 // bytes of all weights
  std::vector<Stretch> stretches_;  // ordered by first use
  std::map<ValueId, ValueId> shard_;
  std::map<ValueId, int> gathers_;
  std::multimap<size_t, Instr> before_;  // gathers, by the instruction after them
};

}  // namespace

void gather_weights(Program& program, const Copies& copies, bool kept) { GatherWeights(program, copies, kept).run(); }

}  // namespace crest
