#include "report/report_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "compare/join.h"
#include "core/text.h"

namespace crest {

std::string label_of(const ProfileInstr& instr) {
  std::vector<std::string> roles;
  for (auto& s : instr.scopes)
    if (std::string role = role_of(s); !role.empty() && std::find(roles.begin(), roles.end(), role) == roles.end())
      roles.push_back(role);
  std::string op = instr.op == "fused" && !instr.parts.empty() ? join(instr.parts, "+") : instr.op;
  if (roles.empty() || roles.size() > 3) return op;
  return join(roles, "+") + " " + op;
}

std::vector<InstrGroup> instr_groups(const Profile& profile) {
  std::map<std::tuple<std::string, std::string, std::string>, InstrGroup> groups;
  for (auto& i : profile.instrs) {
    std::string label = label_of(i);
    InstrGroup& g = groups[{label, i.phase, i.kernel}];
    g.label = label, g.phase = i.phase, g.op_class = i.op_class, g.kernel = i.kernel, g.arithmetic = i.arithmetic;
    g.calls += i.calls;
    g.ms += i.ms, g.floor_ms += i.floor_ms, g.flops += i.flops, g.bytes += i.bytes;
  }
  std::vector<InstrGroup> list;
  for (auto& [key, g] : groups) list.push_back(g);
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.ms > b.ms; });
  return list;
}

}  // namespace crest
