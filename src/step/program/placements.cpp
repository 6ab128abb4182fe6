#include "program/placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.h"
#include "program/op.h"
#include "program/shards.h"
#include "program/waits.h"

namespace crest {

namespace {

// any: what an instruction's other operands are (optimizer states: a rank has all of them or its
// shard).
enum class Placement : uint8_t { any, replicated, partial, shard, local, used_up, absent };

const char* name(Placement p) {
  static constexpr const char* names[] = {"unknown", "replicated", "partial",     "a share",
                                          "local",   "used up",    "not gathered"};
  return names[size_t(p)];
}

class Check {
 public:
  Check(const Program& p, RankProgram kind, std::string_view after) : p_(p), kind_(kind), after_(after) {}

  void run() {
    scalars_ = p_.find("scalars");
    for (size_t i = 0; i < p_.code.size(); ++i) check(int(i));
    for (auto& [shard, of] : taken_)
      if (!of.gathered) broken(fmt::format("the shard %{} of %{} is not gathered", name_of(shard), name_of(of.whole)));
    if (kind_ == RankProgram::update) return;
    std::vector<int> producers = p_.producers();
    for (ValueId v : p_.outputs)
      if (producers[size_t(v)] < 0) broken(fmt::format("output %{} is never written", p_.at(v).name));
    if (kind_ == RankProgram::micro_step) return;
    for (ValueId v : p_.outputs)
      if (Placement at = placement(v); at == Placement::partial || at == Placement::local || at == Placement::used_up)
        broken(fmt::format("output %{} is {}: its sum over the ranks is missing", p_.at(v).name, name(at)));
  }

 private:
  // What the bytes of a storage hold.
  struct Piece {
    int64_t begin, end;
    Placement placement;
  };
  struct Taken {
    ValueId whole;  // storage
    bool gathered = false;
  };

  [[noreturn]] void broken(const std::string& what, int instr = -1) const {
    std::string where = fmt::format("program {} after pass {}", p_.name, after_);
    if (instr >= 0)
      where += fmt::format(", instruction {} ({} at {})", instr, p_.code[size_t(instr)].op->name,
                           p_.code[size_t(instr)].origin.text());
    fail_internal("between ranks: " + what, where);
  }

  std::string name_of(ValueId v) const { return p_.at(v).name; }
  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }

  // Of what no instruction of this Program has written.
  Placement given(ValueId v) const {
    const Value& value = p_.at(v);
    if (value.name == "scalars") return Placement::replicated;
    switch (value.role) {
      case Role::weight:
        // Copies in another dtype that an earlier micro step made live for the step.
        if (!p_.properties.has(weight_shards_property) || value.lifetime == Lifetime::step)
          return Placement::replicated;
        return value.name.ends_with(shard_name("")) ? Placement::shard : Placement::absent;
      case Role::gradient:
        if (value.name.ends_with(shard_name(""))) return Placement::shard;
        return kind_ == RankProgram::update ? Placement::replicated : Placement::partial;
      case Role::output: return Placement::partial;
      case Role::state: return Placement::any;
      default: return Placement::local;
    }
  }

  Placement placement(ValueId v) const {
    auto it = pieces_.find(storage(v));
    if (it == pieces_.end()) return given(storage(v));
    Extent e = extent_of(p_.at(v));
    Placement all = Placement::any;
    for (const Piece& piece : it->second) {
      if (piece.begin >= e.end || e.begin >= piece.end || piece.placement == all) continue;
      if (all != Placement::any) return Placement::local;  // parts differ
      all = piece.placement;
    }
    return all == Placement::any ? given(storage(v)) : all;
  }

  void set(ValueId v, Placement placement) {
    auto& pieces = pieces_[storage(v)];
    Extent e = extent_of(p_.at(v));
    std::vector<Piece> now = {{e.begin, e.end, placement}};
    for (const Piece& x : pieces) {
      if (x.begin < std::min(x.end, e.begin)) now.push_back({x.begin, std::min(x.end, e.begin), x.placement});
      if (std::max(x.begin, e.end) < x.end) now.push_back({std::max(x.begin, e.end), x.end, x.placement});
    }
    pieces = std::move(now);
  }

  bool sums_up(const Instr& instr) const {
    return std::any_of(instr.out.begin(), instr.out.end(),
                       [&](ValueId v) { return p_.at(v).role == Role::gradient || p_.at(v).role == Role::output; });
  }

  void check(int i) {
    const Instr& instr = p_.code[size_t(i)];
    std::string_view op = instr.op->name;
    for (ValueId v : instr.in) {
      Placement at = v == no_value ? Placement::any : placement(v);
      if (at == Placement::used_up) broken(fmt::format("reads %{}, which a reduce_scatter has used up", name_of(v)), i);
      if (at == Placement::absent) broken(fmt::format("reads %{}, which is not gathered", name_of(v)), i);
    }
    if (op == "all_reduce" || op == "reduce_scatter") {
      bool scatters = op == "reduce_scatter";
      for (size_t k = 0; k < (scatters ? 1 : instr.in.size()); ++k)
        if (Placement at = placement(instr.in[k]); at != Placement::partial)
          broken(fmt::format("sums %{}, which is {}", name_of(instr.in[k]), name(at)), i);
      if (scatters && instr.in.size() > 1) require(instr.in[1], Placement::shard, i);
      if (op == "reduce_scatter") set(instr.in[0], Placement::used_up);
      for (ValueId v : instr.out) set(v, op == "all_reduce" ? Placement::replicated : Placement::shard);
    } else if (op == "own_share") {
      take(instr, i);
    } else if (op == "all_gather") {
      gather(instr, i);
    } else if (op == "split_rows" || op == "member") {
      // Views: what their storage holds.
    } else if (op == "copy_in") {
      set(instr.out[0], placement(instr.in[0]));
    } else if (op == "square_sum") {
      for (ValueId v : instr.in) require(v, Placement::shard, i);
      set(instr.out[0], Placement::partial);
    } else {
      compute(instr, i);
    }
  }

  void require(ValueId v, Placement wanted, int i) const {
    if (Placement at = placement(v); at != wanted)
      broken(fmt::format("%{} is {}, not {}", name_of(v), name(at), name(wanted)), i);
  }

  void take(const Instr& instr, int i) {
    require(instr.in[0], Placement::replicated, i);
    set(instr.out[0], Placement::shard);
    if (!taken_.emplace(storage(instr.out[0]), Taken{storage(instr.in[0])}).second) broken("takes a share twice", i);
  }

  void gather(const Instr& instr, int i) {
    require(instr.in[0], Placement::shard, i);
    if (instr.in.size() == 1) {
      if (!is_read(instr.out[0])) broken(fmt::format("gathers %{}, which nobody reads", name_of(instr.out[0])), i);
      return set(instr.out[0], Placement::replicated);
    }
    auto it = taken_.find(storage(instr.in[0]));
    if (it == taken_.end() || it->second.whole != storage(instr.in[1]))
      broken(fmt::format("%{} is no share of %{}", name_of(instr.in[0]), name_of(instr.in[1])), i);
    if (it->second.gathered) broken(fmt::format("gathers the shard %{} twice", name_of(instr.in[0])), i);
    it->second.gathered = true;
    set(instr.out[0], Placement::replicated);
  }

  bool is_read(ValueId whole) const {
    return std::any_of(p_.code.begin(), p_.code.end(), [&](const Instr& instr) {
      return std::any_of(instr.in.begin(), instr.in.end(),
                         [&](ValueId v) { return v != no_value && storage(v) == whole; });
    });
  }

  // What is computed from partial sums must be a sum itself: a gradient or the loss, which add up.
  void compute(const Instr& instr, int i) {
    bool local = false, shard = false, replicated = false, partial = false;
    for (size_t k = 0; k < instr.in.size(); ++k) {
      ValueId v = instr.in[k];
      if (v == no_value) continue;
      Placement at = placement(v);
      bool scalars = storage(v) == scalars_;
      if (at == Placement::partial && !sums_up(instr))
        broken(fmt::format("uses %{}, whose sum over the ranks is missing", name_of(v)), i);
      local |= at == Placement::local, shard |= at == Placement::shard, partial |= at == Placement::partial;
      replicated |= at == Placement::replicated && !scalars;
    }
    if (shard && (local || replicated || partial)) broken("mixes shards with whole tensors", i);
    for (ValueId v : instr.out) {
      bool sum = p_.at(v).role == Role::gradient || p_.at(v).role == Role::output;
      if (storage(v) == scalars_)
        set(v, Placement::replicated);
      else if (sum && kind_ != RankProgram::update && (local || partial))
        set(v, Placement::partial);
      else
        set(v, shard ? Placement::shard : local || partial ? Placement::local : Placement::replicated);
    }
  }

  const Program& p_;
  RankProgram kind_;
  std::string_view after_;
  std::map<ValueId, std::vector<Piece>> pieces_;  // by storage
  std::map<ValueId, Taken> taken_;                // by storage of the shard
  ValueId scalars_ = no_value;
};

}  // namespace

void verify_placements(const Program& program, RankProgram kind, std::string_view after) {
  Check(program, kind, after).run();
}

}  // namespace crest
