// The parameters of a group are contiguous in memory, and so are their gradients and optimizer
// states, in the same order: one optimizer launch, one norm, one message for data parallelism.
// Matrices with weight decay are a group, everything else is another. Parameters with a learning
// rate of their own, and those of which each rank has a part, are in groups of their own. If shards
// travel in buckets (--shard, --reduce bucket), each bucket is a group. Matrices owned by ranks
// (Muon with --shard) are grouped by their role in the layers: every rank has as many of them.
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <unordered_map>

#include "core/error.h"
#include "core/round_up.h"
#include "core/text.h"
#include "model/weights_map.h"
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard.h"

namespace crest {

namespace {

constexpr int64_t gradient_bytes = 4;  // bytes of an element, for bucket sizes
constexpr int64_t lines = 64;  // elements: keeps vector loads and 16-byte device accesses aligned in every dtype

// A parameter and the offset of its elements in the group.
struct Member {
  size_t parameter;
  int64_t offset;
};

class Groups {
 public:
  // bucket: bytes of gradients after which a group ends.
  Groups(Program& program, const PassContext& context, int64_t parts, int64_t bucket)
      : program_(program),
        context_(context),
        builder_(program),
        block_(program.properties.integer(state_block_property, 1)),
        alignment_(round_up(lines, block_)),
        parts_(parts),
        bucket_(bucket) {}

  void run() {
    std::vector<ValueId> gradients = parameter_gradients(program_);
    find_states();
    for (const Kind& kind : kinds()) {
      std::vector<Member> members;
      int64_t size = 0;
      int count = 0;
      auto end = [&] {
        if (members.empty()) return;
        std::string group = kind.rest ? "rest" : "decay";
        if (!kind.role.empty()) {
          std::string role = kind.role;
          std::replace(role.begin(), role.end(), '.', '_');
          group += fmt::format("_{}_{}x{}", role, kind.rows, kind.columns);
        }
        if (kind.lr_group) group += fmt::format("_{}", learning_rate_groups()[size_t(kind.lr_group - 1)].name);
        if (kind.cut) group += "_tensor";
        if (kind.borrowed) group += "_borrowed";
        if (kind.lent) group += "_lent";
        if (kind.chunk) group += fmt::format("_chunk{}", kind.chunk);
        if (count) group += std::to_string(count);
        // A whole number of equal parts: each rank may have one. Of whole tensors if it owns them.
        const int64_t unit = kind.role.empty() ? alignment_ : size / int64_t(members.size());
        add(group, members, round_up(size, unit * parts_), gradients);
        members.clear(), size = 0, ++count;
      };
      for (size_t q = 0; q < program_.params.size(); ++q) {
        const Value& weight = program_.at(program_.params[q].value);
        if (kind_of(program_.params[q]) != kind) continue;
        if (!is_float(weight.dtype) || program_.params[q].frozen) continue;
        members.push_back({q, size});
        size += round_up(numel(q), alignment_);
        const bool equal = kind.role.empty() || int64_t(members.size()) % parts_ == 0;
        if (equal && size >= bucket_ / gradient_bytes) end();
      }
      end();
    }
    for (auto& v : program_.values) {
      auto it = moved_.find(v.layout.storage);
      if (it == moved_.end()) continue;
      v.layout.storage = it->second.first;
      v.layout.offset += it->second.second;
    }
  }

 private:
  // Programs of other chunks lack some parameters, and updates the borrowed ones. Gradients of
  // borrowed and lent ones are summed between the stages first.
  struct Kind {
    int chunk;
    bool borrowed, lent;
    bool rest;  // false: matrices with weight decay, which come first
    bool cut;
    int lr_group;
    std::string role;  // in its layer, if ranks own whole tensors; "" if they have parts
    int64_t rows = 0, columns = 0;
    auto operator<=>(const Kind&) const = default;
  };
  Kind kind_of(const Param& q) const {
    const Value& weight = program_.at(q.value);
    const bool cut = weight.placement[size_t(Axis::tensor)].cut();
    Kind kind = {q.chunk, q.borrowed, q.lent, !q.decay, cut, q.lr_group, ""};
    if (is_owned(context_, q))
      kind.role = role_in_layer(q.name), kind.rows = weight.shape[0], kind.columns = weight.shape[1];
    return kind;
  }
  std::vector<Kind> kinds() const {
    std::vector<Kind> list;
    for (const Param& q : program_.params) list.push_back(kind_of(q));
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }
  using States = std::unordered_map<size_t, ValueId>;  // by parameter

  void add(const std::string& group, const std::vector<Member>& members, int64_t size,
           const std::vector<ValueId>& gradients) {
    place("weights." + group, members, size, 1, [&](size_t q) { return program_.params[q].value; });
    place("gradients." + group, members, size, 1, [&](size_t q) { return gradients[q]; });
    for (auto& [suffix, of] : states_)
      if (int64_t share = share_of(members, of)) {
        auto state = [&of = of](size_t q) { return of.at(q); };
        place(suffix + "." + group, members, size, share, state);
      }
  }

  int64_t numel(size_t q) const { return program_.at(program_.params[q].value).numel(); }

  // Finds states: PARAMETER.SUFFIX.
  void find_states() {
    std::unordered_map<std::string, size_t> parameters;
    for (size_t q = 0; q < program_.params.size(); ++q) parameters.emplace(program_.params[q].name, q);
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& value = program_.values[v];
      size_t dot = value.name.rfind('.');
      if (value.role != Role::state || value.layout.storage != ValueId(v) || dot == std::string::npos) continue;
      auto it = parameters.find(value.name.substr(0, dot));
      if (it != parameters.end()) of_suffix(value.name.substr(dot + 1)).emplace(it->second, ValueId(v));
    }
  }

  States& of_suffix(const std::string& suffix) {
    for (auto& [name, states] : states_)
      if (name == suffix) return states;
    return states_.emplace_back(suffix, States()).second;
  }

  // Parameter elements for each state element: 1, or a block. 0 if the members have the state in
  // different forms; such a state keeps its own memory.
  int64_t share_of(const std::vector<Member>& members, const States& of) const {
    auto first = of.find(members[0].parameter);
    if (first == of.end()) return 0;
    for (int64_t share : {int64_t(1), block_}) {
      bool fits = true;
      for (const Member& m : members) {
        auto it = of.find(m.parameter);
        fits = fits && it != of.end() && program_.at(it->second).numel() == (numel(m.parameter) + share - 1) / share &&
               program_.at(it->second).dtype == program_.at(first->second).dtype;
      }
      if (fits) return share;
    }
    return 0;
  }

  template <class ValueOf>
  void place(const std::string& group, const std::vector<Member>& members, int64_t size, int64_t share,
             ValueOf value_of) {
    ValueId first = value_of(members[0].parameter);
    if (first == no_value) return;
    Value like = program_.at(first);
    ValueId root = builder_.declare(group, like.dtype, {size / share}, like.role, like.lifetime);
    for (size_t a = 0; a < axis_count; ++a)  // one dimension, divided among the ranks like the weights
      if (program_.at(program_.params[members[0].parameter].value).placement[a].cut())
        program_.at(root).placement[a] = Placement::shard(0);
    for (const Member& m : members) {
      ValueId v = value_of(m.parameter);
      if (v == no_value || program_.at(v).dtype != like.dtype)
        fail_internal(fmt::format("group {} has no member for {}", group, program_.params[m.parameter].name));
      moved_.emplace(program_.at(v).layout.storage, std::pair{root, m.offset / share});
    }
  }

  Program& program_;
  const PassContext& context_;
  Builder builder_;
  const int64_t block_, alignment_, parts_, bucket_;
  std::vector<std::pair<std::string, States>> states_;              // by suffix
  std::unordered_map<ValueId, std::pair<ValueId, int64_t>> moved_;  // old storage -> group and offset
};

}  // namespace

void group_parameters(Program& program, const PassContext& context) {
  Groups(program, context, norm_parts(context),
         shards_in_buckets(context) ? parse_bytes(context.setting("bucket"), "--bucket") : INT64_MAX)
      .run();
}

}  // namespace crest
