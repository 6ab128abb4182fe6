// The flat optimizer: one update of a group's memory replaces the updates of its tensors. Readers
// of an updated matrix then read a view of the group.
#include <algorithm>
#include <map>

#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "ops/update.h"
#include "passes/fuse.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class FlatUpdate {
 public:
  explicit FlatUpdate(Program& program) : p_(program), readers_(program.consumers()) {
    for (ValueId g : parameter_gradients(program)) ++members_[root(g)];
  }

  void run() {
    std::map<ValueId, std::vector<size_t>> by_group;  // by parameter's group
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (p_.code[i].op->flat) by_group[root(p_.code[i].in[parameter_input])].push_back(i);
    std::vector<Work> work(p_.code.size(), Work::keep);
    for (auto& [group, list] : by_group)
      if (covers_a_group(list)) merge(list, work);
    std::vector<Instr> old = std::move(p_.code);
    p_.code.clear();
    Builder b(p_);
    for (size_t i = 0; i < old.size(); ++i) {
      if (is(old[i], "grad_norm")) flatten_norm(old[i], in::grad_norm::gradients);
      if (is(old[i], "square_sum")) flatten_norm(old[i], in::square_sum::shards);
      if (work[i] == Work::flat) {
        b.phase = old[i].phase, b.stream = old[i].stream;
        view_members(b, b.append(std::move(old[i])), views_[i]);
      }
      if (work[i] != Work::keep) continue;
      for (ValueId& v : old[i].in)
        if (auto it = instead_.find(v); it != instead_.end()) v = it->second;
      p_.code.push_back(std::move(old[i]));
    }
  }

 private:
  enum class Work { keep, flat, gone };

  // An updated matrix with a reader.
  struct View {
    ValueId member;
    size_t output;  // index in the update's outputs
    Origin origin;
  };
  bool is_read(ValueId v) const { return !readers_[size_t(v)].empty(); }

  ValueId root(ValueId v) const { return v == no_value ? no_value : p_.at(v).layout.storage; }

  // Whether the instructions are the same update of every member of a group. The states must be
  // groups, too.
  bool covers_a_group(const std::vector<size_t>& list) const {
    const Instr& first = p_.code[list[0]];
    size_t members = 0;
    for (ValueId v : first.in)
      if (v != no_value && p_.at(v).role == Role::gradient) members = members_.at(root(v));
    if (members != list.size()) return false;
    for (size_t i : list) {
      const Instr& instr = p_.code[i];
      if (instr.op != first.op || !(instr.attrs == first.attrs) || instr.in.size() != first.in.size()) return false;
      for (size_t k = 0; k < instr.in.size(); ++k)
        if (root(instr.in[k]) != root(first.in[k]) ||
            (k != scalars_input && instr.in[k] != no_value && root(instr.in[k]) == instr.in[k]))
          return false;
      for (ValueId v : instr.out)
        if (is_read(v) && p_.at(v).shape.rank() != 2) return false;
    }
    return true;
  }

  void merge(const std::vector<size_t>& list, std::vector<Work>& work) {
    Instr& flat = p_.code[list[0]];
    std::string origin;  // joined once: a union of each two would be stored separately
    for (size_t i : list) {
      origin += (origin.empty() ? "" : "+") + p_.code[i].origin.text();
      // The group gets a new version instead of its member.
      const Instr& instr = p_.code[i];
      for (size_t o = 0; o < instr.out.size(); ++o) {
        p_.at(instr.out[o]).lifetime = Lifetime::micro_step;
        if (is_read(instr.out[o])) views_[list[0]].push_back({instr.out[o], o, instr.origin});
      }
      work[i] = Work::gone;
    }
    flat.origin = Origin::parse(origin);
    for (size_t k = parameter_input; k < flat.in.size(); ++k) flat.in[k] = root(flat.in[k]);
    work[list[0]] = Work::flat;
  }

  void view_members(Builder& b, const std::vector<ValueId>& updated, const std::vector<View>& views) {
    for (const View& view : views) {
      const Value member = p_.at(view.member);
      b.origin = view.origin;
      instead_[view.member] = b.emit1(
          "member", {updated[view.output]},
          Attrs().set("offset", member.layout.offset).set("rows", member.shape[0]).set("columns", member.shape[1]));
    }
  }

  // first: index of the first gradient input.
  void flatten_norm(Instr& norm, size_t first) const {
    if (norm.attrs.integer("squares", 0)) return;
    std::vector<ValueId> in(norm.in.begin(), norm.in.begin() + ptrdiff_t(first));
    for (size_t i = first; i < norm.in.size(); ++i)
      if (std::find(in.begin(), in.end(), root(norm.in[i])) == in.end()) in.push_back(root(norm.in[i]));
    norm.in = in;
  }

  Program& p_;
  std::vector<std::vector<int>> readers_;
  std::map<ValueId, size_t> members_;          // gradients by group
  std::map<size_t, std::vector<View>> views_;  // by index of the flat update
  std::map<ValueId, ValueId> instead_;         // member's version -> its view
};

}  // namespace

void flatten_update(Program& program) { FlatUpdate(program).run(); }

}  // namespace crest
