#include "program/placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "program/op.h"
#include "program/place.h"
#include "program/waits.h"

namespace crest {

namespace {

using Kind = Placement::Kind;

bool over(const Instr& instr, Axis axis) { return axes_of(instr).has(axis); }

class Inference {
 public:
  Inference(const Program& p, Axis axis, std::string_view after)
      : p_(p), axis_(axis), after_(after), made_(p.values.size()) {}

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i) infer(int(i));
    for (auto& [shard, of] : taken_)
      if (!of.gathered) broken(fmt::format("the shard %{} of %{} is not gathered", name_of(shard), name_of(of.whole)));
  }

  // The host and the update read sums. A micro step before the last leaves parts of them.
  void check_outputs() const {
    std::vector<int> producers = p_.producers();
    bool last = p_.properties.integer("last", 1) != 0;
    for (ValueId v : p_.outputs) {
      if (producers[size_t(v)] < 0) broken(fmt::format("output %{} is never written", name_of(v)));
      Placement at = placement(v);
      if (last && ((at.kind != Kind::replicated && at.kind != Kind::shard) || at.piece >= 0))
        broken(fmt::format("output %{} is {}: its sum over the ranks is missing", name_of(v), text(at)));
    }
  }

  // Infers a fused body from the placements of its inputs. Returns "", or says why they do not fit.
  std::string run_body(const std::vector<Placement>& in, std::vector<Placement>& out) {
    for (size_t k = 0; k < in.size(); ++k) set(p_.inputs[k], in[k]);
    for (const Instr& instr : p_.code) {
      std::vector<Placement> results;
      if (std::string wrong = compute(instr, results); !wrong.empty()) return wrong;
      for (size_t o = 0; o < instr.out.size(); ++o) set(instr.out[o], results[o], is_view(instr, o));
    }
    out.clear();
    for (ValueId v : p_.outputs) out.push_back(placement(v));
    return "";
  }

  Handover handover() {
    Handover h;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      for (ValueId v : p_.code[i].in)
        if (v != no_value && outlives(v) && !written(v))
          h.reads.push_back({name_of(storage(v)), name_of(v), storage(v) == v ? placement(v) : of_member(placement(v)),
                             p_.at(storage(v)).role == Role::gradient});
      infer(int(i));
    }
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (const bool absent = placement(ValueId(v)).kind == Kind::absent;
          storage(ValueId(v)) == ValueId(v) && outlives(ValueId(v)) && (absent || pieces_.count(ValueId(v))))
        h.leaves.emplace(name_of(ValueId(v)), placement(ValueId(v)));
    return h;
  }

  Placement made(ValueId v) const { return made_[size_t(v)].placement; }

 private:
  // The placement of a result, and the instruction that made it. Instructions are counted from 1.
  struct Made {
    int at = 0;
    Placement placement;
  };
  // The content of a storage's bytes since instruction `at`.
  struct Piece {
    int64_t begin, end;
    int at;
    Placement placement;
    bool group;  // written as a whole storage
  };
  struct Taken {
    ValueId whole;  // storage
    bool gathered = false;
  };

  [[noreturn]] void broken(const std::string& what, int instr = -1) const {
    std::string where = fmt::format("program {} after pass {}, axis {}", p_.name, after_, name(axis_));
    if (instr >= 0)
      where += fmt::format(", instruction {} ({} at {})", instr, p_.code[size_t(instr)].op->name,
                           p_.code[size_t(instr)].origin.text());
    fail_internal("between ranks: " + what, where);
  }

  const std::string& name_of(ValueId v) const { return p_.at(v).name; }
  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }

  // Persistent outputs are tables. Each step starts them from zeros: valid both as a sum and as an
  // addend.
  bool outlives(ValueId v) const {
    const Value& value = p_.at(storage(v));
    return value.lifetime == Lifetime::step || value.lifetime == Lifetime::slot ||
           (value.lifetime == Lifetime::persistent && value.role != Role::output);
  }

  // Whether an instruction has written any of these bytes.
  bool written(ValueId v) const {
    auto it = pieces_.find(storage(v));
    if (it == pieces_.end()) return false;
    Extent e = extent_of(p_.at(v));
    return std::any_of(it->second.begin(), it->second.end(),
                       [&](const Piece& piece) { return piece.begin < e.end && e.begin < piece.end; });
  }

  // The latest placement written to these bytes, or the declared one.
  Placement placement(ValueId v) const {
    const Made& made = made_[size_t(v)];
    Placement declared = made.at ? made.placement : p_.at(v).placement[size_t(axis_)];
    auto it = pieces_.find(storage(v));
    if (it == pieces_.end()) return declared;
    Extent e = extent_of(p_.at(v));
    const bool is_group = storage(v) == v && !made.at;
    bool found = false;
    Placement all;
    for (const Piece& piece : it->second) {
      if (piece.begin >= e.end || e.begin >= piece.end || piece.at <= made.at) continue;
      const bool of_own = storage(v) == v && piece.placement.kind == Kind::each;
      const bool member = of_own || (is_group && piece.placement != declared);
      Placement part = member ? of_member(piece.placement) : piece.placement;
      if (piece.group && !is_group && part == of_member(declared)) part = declared;  // the group's part of a member
      if (found && !(all == part)) return Placement::own();                          // parts differ
      found = true, all = part;
    }
    return found ? all : declared;
  }
  // The placement of a group from the placement of a member. If the member is cut in any way, each
  // rank has a part of the group's elements. The same if each rank has another member there.
  static Placement of_member(Placement p) { return p.cut() || p.kind == Kind::each ? Placement::shard(0) : p; }

  void set(ValueId v, Placement placement, bool view = false) {
    made_[size_t(v)] = {++now_, placement};
    if (!view) write(v, placement);
  }

  void write(ValueId v, Placement placement) {
    auto& pieces = pieces_[storage(v)];
    Extent e = extent_of(p_.at(v));
    std::vector<Piece> now = {{e.begin, e.end, now_, placement, storage(v) == v}};
    for (const Piece& x : pieces) {
      if (x.begin < std::min(x.end, e.begin))
        now.push_back({x.begin, std::min(x.end, e.begin), x.at, x.placement, x.group});
      if (std::max(x.begin, e.end) < x.end)
        now.push_back({std::max(x.begin, e.end), x.end, x.at, x.placement, x.group});
    }
    pieces = std::move(now);
  }

  bool is_view(const Instr& instr, size_t o) const {
    if (storage(instr.out[o]) == instr.out[o]) return false;
    Infer infer(p_, instr);
    instr.op->infer(infer);
    return infer.outs[o].alias >= 0 && !infer.outs[o].consumes;
  }

  void infer(int i) {
    const Instr& instr = p_.code[size_t(i)];
    std::string_view op = instr.op->name;
    std::vector<Placement> out;
    std::string wrong;
    if (op == "all_reduce")
      wrong = all_reduce(instr, out);
    else if (op == "reduce_scatter")
      wrong = reduce_scatter(instr, out);
    else if (op == "own_share")
      wrong = take(instr, out);
    else if (op == "all_gather")
      wrong = gather(instr, out);
    else if (instr.op->exchange && over(instr, axis_))
      wrong = exchange(instr, out);
    else if (op.ends_with("_pieces") && over(instr, axis_))
      wrong = op == "split_pieces" ? split(instr, out) : op == "join_pieces" ? join(instr, out) : sum(instr, out);
    else
      wrong = compute(instr, out);
    if (!wrong.empty()) broken(wrong, i);
    for (size_t o = 0; axis_ == Axis::tensor && o < instr.out.size(); ++o)
      if (wrong = misplaced(instr.out[o], out[o]); !wrong.empty()) broken(wrong, i);
    for (size_t o = 0; o < instr.out.size(); ++o) set(instr.out[o], out[o], keeps_bytes(instr, o));
  }
  // Pieces in their place are the whole.
  bool keeps_bytes(const Instr& instr, size_t o) const {
    return is_view(instr, o) || std::string_view(instr.op->name) == "join_pieces";
  }

  std::string compute(const Instr& instr, std::vector<Placement>& out) {
    std::vector<Placement> in;
    for (ValueId v : instr.in) in.push_back(v == no_value ? Placement() : placement(v));
    if (instr.op->name == std::string_view("member") && instr.attrs.has("each") && in[0].cut()) {
      out = {Placement::each()};
      return "";
    }
    const bool copies = is_copy(instr);  // of the first input; the second is overwritten
    if (!copies && std::any_of(in.begin(), in.end(), [](const Placement& p) { return p.kind == Kind::each; }))
      return compute_each(instr, in, out);
    if (instr.body) return Inference(*instr.body, axis_, after_).run_body(in, out);
    if (instr.op->place) return place(p_, instr, axis_, in, out);
    std::string_view op = instr.op->name;
    if (op == "receive") {  // from ranks with the same coordinates
      out = {in.empty() ? p_.at(instr.out[0]).placement[size_t(axis_)] : in[0]};
      return "";
    }
    if (in[0].kind == Kind::absent) return fmt::format("reads %{}, which holds nothing", name_of(instr.in[0]));
    out.assign(instr.out.size(), in[0]);
    if (copies || op == "send") return "";
    const bool parts = in[0].cut(), of_stages = instr.attrs.has("axes") && over(instr, axis_);
    if (op == "square_sum" && (parts || of_stages)) {  // a part of the sum
      out[0] = Placement::partial();
      return all_are(instr, parts ? Kind::shard : Kind::replicated);
    }
    return all_are(instr, Kind::replicated);  // no rule
  }

  static bool is_copy(const Instr& instr) {
    const std::string_view op = instr.op->name;
    return op == "copy_in" || op == "copy_out";
  }

  // Each rank computes with its own tensors, and with those that all have.
  std::string compute_each(const Instr& instr, const std::vector<Placement>& in, std::vector<Placement>& out) const {
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i].kind != Kind::each && !in[i].replicated())
        return fmt::format("%{} is {}, but another operand is another tensor on each rank", name_of(instr.in[i]),
                           text(in[i]));
    out.assign(instr.out.size(), Placement::each());
    return "";
  }

  std::string all_are(const Instr& instr, Kind kind) const {
    for (ValueId v : instr.in)
      if (std::string no = v == no_value ? "" : wanted(v, kind); !no.empty()) return no;
    return "";
  }

  std::string wanted(ValueId v, Kind kind) const {
    Placement is = placement(v);
    if (is.kind == kind && is.piece < 0) return "";
    return fmt::format("%{} is {}, not {}", name_of(v), text(is), text(Placement{kind, 0}));
  }

  std::string all_reduce(const Instr& instr, std::vector<Placement>& out) const {
    for (ValueId v : instr.in) out.push_back(placement(v));
    if (!over(instr, axis_)) return "";
    for (ValueId v : instr.in)
      if (std::string no = wanted(v, Kind::partial); !no.empty()) return "sums over the ranks, but " + no;
    out.assign(instr.out.size(), Placement());
    return "";
  }

  std::string reduce_scatter(const Instr& instr, std::vector<Placement>& out) {
    out = {placement(instr.in[0])};
    if (!over(instr, axis_)) return "";
    if (std::string no = wanted(instr.in[0], Kind::partial); !no.empty()) return "sums over the ranks, but " + no;
    if (instr.in.size() > 1)
      if (std::string no = wanted(instr.in[1], Kind::shard); !no.empty()) return no;
    out = {Placement::shard(0)};
    ++now_;
    write(instr.in[0], Placement::absent());  // used up
    return "";
  }

  // Two chunks of a sequence along a dimension, as the value has them.
  Placement of_tokens(Placement p, ValueId v) const {
    return p.chunk ? Placement::chunks(p.dim, p_.at(v).shape[p.dim] / 2) : p;
  }

  std::string exchange(const Instr& instr, std::vector<Placement>& out) {
    Exchange e = *instr.op->exchange;
    for (Placement* p : {&e.from, &e.to})
      if (p->piece >= 0) p->piece = int8_t(instr.attrs.integer("piece", 0));
    for (size_t i = 0; i < instr.in.size(); ++i) {
      const Placement wanted = i == 0 && instr.in[i] != no_value ? of_tokens(e.from, instr.in[i]) : Placement();
      if (instr.in[i] == no_value || placement(instr.in[i]) == wanted) continue;
      return fmt::format("needs %{} {}, but it is {}", name_of(instr.in[i]), text(wanted),
                         text(placement(instr.in[i])));
    }
    out = {of_tokens(e.to, instr.out[0])};
    ++now_;
    if (e.uses_up) write(instr.in[0], Placement::absent());
    return "";
  }

  // What has some rows in its place among all rows has those of its piece.
  std::string misplaced(ValueId v, Placement at) const {
    const Layout& layout = p_.at(v).layout;
    const int piece = at.piece < 0 && at == Placement::shard(0) ? 0 : at.piece;
    if (!layout.pieces || layout.piece == piece) return "";
    return fmt::format("%{} is {}, but in the place of piece {}", name_of(v), text(at), layout.piece);
  }

  // Rows become one dimension: columns are dimension 1 of a piece.
  std::string split(const Instr& instr, std::vector<Placement>& out) const {
    Placement at = placement(instr.in[0]);
    const int columns = p_.at(instr.in[0]).shape.rank() - 1;
    if (at.piece >= 0 || at.kind == Kind::own || at.kind == Kind::absent || (at.cut() && at.dim != columns))
      return fmt::format("splits %{}, which is {}", name_of(instr.in[0]), text(at));
    if (at.cut()) at.dim = 1;
    for (size_t k = 0; k < instr.out.size(); ++k) out.push_back(at.rows_of(int(k)));
    return "";
  }

  std::string join(const Instr& instr, std::vector<Placement>& out) const {
    Placement at = placement(instr.in[0]).rows_of(-1);
    if (at.kind == Kind::own || (at.cut() && at.dim != 1))
      return fmt::format("joins %{}, which is {}", name_of(instr.in[0]), text(at));
    if (std::string no = in_order(instr, 0, at); !no.empty()) return no;
    if (at.cut()) at.dim = 2;
    out = {at};
    return "";
  }

  // The own addend, and those from the other ranks.
  std::string sum(const Instr& instr, std::vector<Placement>& out) const {
    if (instr.in[0] != no_value)
      if (std::string no = wanted(instr.in[0], Kind::replicated); !no.empty()) return no;
    if (std::string no = in_order(instr, 1, Placement::partial(), Placement::own()); !no.empty()) return no;
    out = {Placement::shard(0)};
    return "";
  }

  // Pieces 0, 1, .. of what is placed like this, from an input on.
  std::string in_order(const Instr& instr, size_t from, Placement own, Placement others) const {
    for (size_t i = from; i < instr.in.size(); ++i)
      if (const Placement needed = (i == from ? own : others).rows_of(int(i - from));
          !(placement(instr.in[i]) == needed))
        return fmt::format("needs %{} {}, but it is {}", name_of(instr.in[i]), text(needed),
                           text(placement(instr.in[i])));
    return "";
  }
  std::string in_order(const Instr& instr, size_t from, Placement all) const { return in_order(instr, from, all, all); }

  std::string take(const Instr& instr, std::vector<Placement>& out) {
    out = {placement(instr.in[0])};
    if (!over(instr, axis_)) return "";
    out = {Placement::shard(0)};
    if (!taken_.emplace(storage(instr.out[0]), Taken{storage(instr.in[0])}).second) return "takes a share twice";
    return wanted(instr.in[0], Kind::replicated);
  }

  std::string gather(const Instr& instr, std::vector<Placement>& out) {
    out = {placement(instr.in[0])};
    if (!over(instr, axis_)) return "";
    if (std::string no = wanted(instr.in[0], Kind::shard); !no.empty()) return no;
    out = {Placement()};
    if (instr.in.size() == 1)
      return is_read(instr.out[0]) ? "" : fmt::format("gathers %{}, which nobody reads", name_of(instr.out[0]));
    auto it = taken_.find(storage(instr.in[0]));
    if (it == taken_.end() || it->second.whole != storage(instr.in[1]))
      return fmt::format("%{} is no share of %{}", name_of(instr.in[0]), name_of(instr.in[1]));
    if (it->second.gathered) return fmt::format("gathers the shard %{} twice", name_of(instr.in[0]));
    it->second.gathered = true;
    return "";
  }

  bool is_read(ValueId whole) const {
    return std::any_of(p_.code.begin(), p_.code.end(), [&](const Instr& instr) {
      return std::any_of(instr.in.begin(), instr.in.end(),
                         [&](ValueId v) { return v != no_value && storage(v) == whole; });
    });
  }

  const Program& p_;
  Axis axis_;
  std::string_view after_;
  std::vector<Made> made_;                        // by value
  std::map<ValueId, std::vector<Piece>> pieces_;  // by storage
  std::map<ValueId, Taken> taken_;                // by storage of the shard
  int now_ = 0;
};

}  // namespace

void infer_placements(Program& program, std::string_view after, bool outputs) {
  std::vector<int> producers = program.producers();
  for (size_t a = 0; a < axis_count; ++a) {
    auto declared = [&](const Value& v) { return !v.placement[a].replicated(); };
    auto exchanges = [&](const Instr& instr) { return instr.attrs.has("axes") && over(instr, Axis(a)); };
    if (std::none_of(program.values.begin(), program.values.end(), declared) &&
        std::none_of(program.code.begin(), program.code.end(), exchanges))
      continue;
    Inference inference(program, Axis(a), after);
    inference.run();
    if (outputs) inference.check_outputs();
    for (size_t v = 0; v < program.values.size(); ++v)
      if (producers[v] >= 0) program.values[v].placement[a] = inference.made(ValueId(v));
  }
}

void verify_placements(Program& program, std::string_view after) { infer_placements(program, after, true); }

bool communicates_in_one_order(const Program& program) {
  std::set<Axes> groups;
  std::set<Stream> streams;
  for (const Instr& instr : program.code) {
    if (instr.op->op_class != OpClass::communication) continue;
    groups.insert(axes_of(instr));
    streams.insert(instr.stream);
  }
  return streams.size() < 2 || groups == std::set<Axes>{Axis::data};
}

Handover handover(const Program& program, Axis axis) { return Inference(program, axis, "all").handover(); }

}  // namespace crest
