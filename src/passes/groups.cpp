// Parameters of a group (matrices that decay, everything else) lie next to each other, and so do their gradients,
// moments and master weights in the same order: one optimizer launch, one norm, one message for data parallelism.
#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "core/error.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

constexpr int64_t alignment = 64;  // elements: vector loads and 16-byte device accesses stay aligned in every dtype

class Groups {
 public:
  explicit Groups(Program& program) : program_(program) {}

  void run() {
    std::vector<ValueId> gradients = parameter_gradients(program_);
    // Names are copied: place() declares values, and views of short names would not survive the list growing.
    std::unordered_map<std::string, ValueId> states;
    for (size_t v = 0; v < program_.values.size(); ++v)
      if (program_.values[v].role == Role::state) states.emplace(program_.values[v].name, ValueId(v));
    for (bool decay : {true, false}) {
      const char* group = decay ? "decay" : "rest";
      std::vector<std::pair<size_t, int64_t>> members;  // parameter, offset
      int64_t size = 0;
      for (size_t q = 0; q < program_.params.size(); ++q) {
        if (program_.params[q].decay != decay) continue;
        members.emplace_back(q, size);
        size += (program_.at(program_.params[q].value).numel() + alignment - 1) / alignment * alignment;
      }
      if (members.empty()) continue;
      auto state = [&](size_t q, const char* suffix) {
        auto it = states.find(program_.params[q].name + suffix);
        return it == states.end() ? no_value : it->second;
      };
      place(fmt::format("weights.{}", group), members, size, [&](size_t q) { return program_.params[q].value; });
      place(fmt::format("gradients.{}", group), members, size, [&](size_t q) { return gradients[q]; });
      place(fmt::format("master.{}", group), members, size, [&](size_t q) { return state(q, ".master"); });
      place(fmt::format("m.{}", group), members, size, [&](size_t q) { return state(q, ".m"); });
      place(fmt::format("v.{}", group), members, size, [&](size_t q) { return state(q, ".v"); });
    }
    for (auto& v : program_.values) {
      auto it = moved_.find(v.layout.storage);
      if (it == moved_.end()) continue;
      v.layout.storage = it->second.first;
      v.layout.offset += it->second.second;
    }
  }

 private:
  template <class ValueOf>
  void place(const std::string& group, const std::vector<std::pair<size_t, int64_t>>& members, int64_t size,
             ValueOf value_of) {
    ValueId first = value_of(members[0].first);
    if (first == no_value) return;
    Value like = program_.at(first);
    Builder b(program_);
    ValueId root = b.declare(group, like.dtype, {size}, like.role, like.lifetime);
    for (auto [q, offset] : members) {
      ValueId v = value_of(q);
      if (v == no_value || program_.at(v).dtype != like.dtype)
        fail_internal(fmt::format("group {} has no member for {}", group, program_.params[q].name));
      moved_.emplace(program_.at(v).layout.storage, std::pair{root, offset});
    }
  }

  Program& program_;
  std::unordered_map<ValueId, std::pair<ValueId, int64_t>> moved_;  // old storage -> group and offset
};

}  // namespace

void group_parameters(Program& program, const PassContext&) { Groups(program).run(); }

}  // namespace crest
