// The flat optimizer: instructions that update the tensors of a group one by one become one over
// the group's memory.
#include <algorithm>
#include <map>

#include "ops/index.h"
#include "ops/update.h"
#include "passes/fuse.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class FlatUpdate {
 public:
  explicit FlatUpdate(Program& program) : p_(program) {
    for (ValueId g : parameter_gradients(program)) ++members_[root(g)];
  }

  void run() {
    std::map<ValueId, std::vector<size_t>> by_group;  // parameter's group -> instructions
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (p_.code[i].op->flat) by_group[root(p_.code[i].in[parameter_input])].push_back(i);
    std::vector<Work> work(p_.code.size(), Work::keep);
    for (auto& [group, list] : by_group)
      if (covers_a_group(list)) merge(list, work);
    std::vector<Instr> old = std::move(p_.code);
    p_.code.clear();
    Builder b(p_);
    for (size_t i = 0; i < old.size(); ++i) {
      if (is(old[i], "grad_norm")) flatten_norm(old[i]);
      if (work[i] == Work::flat) b.append(std::move(old[i]));
      if (work[i] == Work::keep) p_.code.push_back(std::move(old[i]));
    }
  }

 private:
  enum class Work { keep, flat, gone };

  ValueId root(ValueId v) const { return v == no_value ? no_value : p_.at(v).layout.storage; }

  // The same update of every member of a group, with states that are groups, too.
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
    }
    return true;
  }

  void merge(const std::vector<size_t>& list, std::vector<Work>& work) {
    Instr& flat = p_.code[list[0]];
    std::string origin;  // of all, joined once: each union of two would be a list of its own
    for (size_t i : list) {
      origin += (origin.empty() ? "" : "+") + p_.code[i].origin.text();
      // The group gets a new version; that of the member alone is no value any more.
      for (ValueId v : p_.code[i].out) p_.at(v).lifetime = Lifetime::micro_step;
      work[i] = Work::gone;
    }
    flat.origin = Origin::parse(origin);
    for (size_t k = parameter_input; k < flat.in.size(); ++k) flat.in[k] = root(flat.in[k]);
    work[list[0]] = Work::flat;
  }

  void flatten_norm(Instr& norm) const {
    std::vector<ValueId> in = {norm.in[in::grad_norm::scalars]};
    for (size_t i = in::grad_norm::gradients; i < norm.in.size(); ++i)
      if (std::find(in.begin(), in.end(), root(norm.in[i])) == in.end()) in.push_back(root(norm.in[i]));
    norm.in = in;
  }

  Program& p_;
  std::map<ValueId, size_t> members_;  // gradients of a group
};

}  // namespace

void flatten_update(Program& program) { FlatUpdate(program).run(); }

}  // namespace crest
