#include "ops/index.h"
#include "passes/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "passes/rewrite.h"

namespace crest {

namespace {

constexpr size_t longest = 24;  // instructions of a body: keeps workspace tiles in L1

// Greedy clustering in program order. An instruction joins its producers' clusters. A gradient
// joins the repeated activation with the same input (recompute). All members of a merged cluster
// must be able to run at one position: after every input, and before any reader outside the
// cluster.
class ChainFuser {
 public:
  explicit ChainFuser(Program& program)
      : p_(program),
        producer_(program.producers()),
        consumers_(program.consumers()),
        cluster_(program.code.size(), -1) {
    is_output_.assign(p_.values.size(), false);
    for (ValueId v : p_.outputs) is_output_[size_t(v)] = true;
  }

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (fusible(p_.code[i])) join(i);
    rebuild();
  }

 private:
  bool fusible(const Instr& instr) const {
    bool sum = is(instr, "bias_grad");
    if (!instr.op->pointwise && !sum) return false;
    for (size_t k = 0; k < instr.in.size(); ++k)
      if (instr.in[k] != no_value && !p_.at(instr.in[k]).contiguous()) return false;
    for (ValueId v : instr.out)
      if (!sum && p_.at(v).lifetime != Lifetime::micro_step) return false;  // a weight's cast, used in the whole step
    return true;
  }
  const Shape& shape_of(const Instr& instr) const {
    return p_.at(is(instr, "bias_grad") ? instr.in[in::bias_grad::dy] : instr.out[0]).shape;
  }

  void join(size_t i) {
    const Instr& instr = p_.code[i];
    std::vector<int> merged = {int(i)};
    std::vector<int> sources;
    auto consider = [&](int c) {
      if (c < 0 || std::find(sources.begin(), sources.end(), c) != sources.end()) return;
      const Instr& head = p_.code[size_t(members_[size_t(c)][0])];
      bool phases = head.phase == instr.phase || (head.phase == Phase::recompute && instr.phase == Phase::backward);
      if (!phases || head.stream != instr.stream || !(shape_of(head) == shape_of(instr))) return;
      std::vector<int> trial = merged;
      trial.insert(trial.end(), members_[size_t(c)].begin(), members_[size_t(c)].end());
      std::sort(trial.begin(), trial.end());
      if (trial.size() <= longest && position_of(trial) >= 0) merged = trial, sources.push_back(c);
    };
    for (ValueId v : instr.in) {
      if (v == no_value) continue;
      if (int made = producer_[size_t(v)]; made >= 0 && !is(p_.code[size_t(made)], "bias_grad"))
        consider(cluster_[size_t(made)]);
      if (instr.phase != Phase::backward) continue;
      for (int other : consumers_[size_t(v)])
        if (other < int(i) && p_.code[size_t(other)].phase == Phase::recompute) consider(cluster_[size_t(other)]);
    }
    if (sources.empty()) {
      cluster_[i] = int(members_.size());
      members_.push_back({int(i)});
      position_.push_back(int(i));
      return;
    }
    int target = sources[0];
    for (int c : sources)
      if (c != target) members_[size_t(c)].clear();
    members_[size_t(target)] = merged;
    for (int m : merged) cluster_[size_t(m)] = -1;  // the new position is independent of theirs
    position_[size_t(target)] = position_of(merged);
    for (int m : merged) cluster_[size_t(m)] = target;
  }

  bool clustered(int i) const {
    int c = cluster_[size_t(i)];
    return c >= 0 && members_[size_t(c)].size() > 1;
  }
  int place(int i) const { return clustered(i) ? position_[size_t(cluster_[size_t(i)])] : i; }

  // The position of all members: the last member's, or before the first outside reader if it comes
  // earlier. -1: an input comes later.
  int position_of(const std::vector<int>& members) const {
    auto member = [&](int i) { return std::binary_search(members.begin(), members.end(), i); };
    int position = members.back();
    for (int m : members)
      for (ValueId v : p_.code[size_t(m)].out)
        for (int c : consumers_[size_t(v)])
          if (!member(c)) position = std::min(position, clustered(c) ? place(c) - 1 : c);
    for (int m : members)
      for (ValueId v : p_.code[size_t(m)].in)
        if (v != no_value && producer_[size_t(v)] >= 0 && !member(producer_[size_t(v)]) &&
            place(producer_[size_t(v)]) >= position)
          return -1;
    return position;
  }

  void rebuild() {
    std::unordered_map<int, std::vector<size_t>> here;  // by the instruction after them
    for (size_t c = 0; c < members_.size(); ++c)
      if (members_[c].size() > 1) here[position_[c]].push_back(c);
    std::vector<Instr> old = std::move(p_.code), code;
    for (size_t i = 0; i < old.size(); ++i) {
      if (auto it = here.find(int(i)); it != here.end())
        for (size_t c : it->second) code.push_back(fused(old, members_[c]));
      int c = cluster_[i];
      if (c < 0 || members_[size_t(c)].size() < 2) code.push_back(std::move(old[i]));  // not in a cluster
    }
    p_.code = std::move(code);
    drop_unused_values(p_);
  }

  Instr fused(const std::vector<Instr>& old, const std::vector<int>& members) {
    Instr result;
    result.op = &op("fused");
    result.phase = old[size_t(members.back())].phase, result.stream = old[size_t(members[0])].stream;
    auto body = std::make_shared<Program>();
    body->name = "body";
    std::unordered_map<ValueId, ValueId> inside;  // value of the Program -> value of the body
    auto import = [&](ValueId v) {
      if (v == no_value) return v;
      auto it = inside.find(v);
      if (it != inside.end()) return it->second;
      auto id = ValueId(body->values.size());
      Value copy = p_.at(v);
      copy.layout = {id, 0, copy.shape.contiguous_strides()};
      copy.role = Role::input, copy.lifetime = Lifetime::micro_step, copy.placement = {};
      body->values.push_back(copy);
      body->inputs.push_back(id);
      result.in.push_back(v);
      inside.emplace(v, id);
      return id;
    };
    for (int m : members) {
      const Instr& instr = old[size_t(m)];
      result.origin = result.origin | instr.origin;
      Instr copy = instr;
      for (ValueId& v : copy.in) v = import(v);
      Infer infer(*body, copy);
      copy.op->infer(infer);
      for (size_t o = 0; o < copy.out.size(); ++o) {
        auto id = ValueId(body->values.size());
        Value value = p_.at(instr.out[o]);
        value.layout = layout_of(*body, copy, infer.outs[o], id);
        value.role = Role::activation, value.lifetime = Lifetime::micro_step, value.placement = {};
        body->values.push_back(value);
        inside.emplace(instr.out[o], id);
        copy.out[o] = id;
        bool outside = is_output_[size_t(instr.out[o])];
        for (int c : consumers_[size_t(instr.out[o])])
          outside |= !std::binary_search(members.begin(), members.end(), c);
        if (outside || p_.at(instr.out[o]).lifetime != Lifetime::micro_step) {
          body->outputs.push_back(id);
          result.out.push_back(instr.out[o]);
        }
      }
      body->code.push_back(std::move(copy));
    }
    result.body = body;
    return result;
  }

  Program& p_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> cluster_;               // per instruction: its cluster or -1
  std::vector<std::vector<int>> members_;  // per cluster: sorted instruction indices
  std::vector<int> position_;              // per cluster: the instruction after it
  std::vector<bool> is_output_;
};

}  // namespace

void fuse_chains(Program& program) { ChainFuser(program).run(); }

}  // namespace crest
