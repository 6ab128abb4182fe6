#include "plan/choose_kernels.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "ops/op.h"

namespace crest {

namespace {

using KernelLists = std::unordered_map<std::string_view, std::vector<const Kernel*>>;

KernelLists lists_of(const Recipe& recipe, const Device& device) {
  KernelLists lists;
  for (auto& k : kernels_of(device.kind)) lists[k.op].push_back(&k);
  for (auto& [op_name, pattern] : recipe.kernels) {
    std::vector<std::string> known;
    for (auto& [o, list] : lists) known.emplace_back(o);
    auto it = lists.find(op_name);
    if (it == lists.end())
      fail_usage(fmt::format("no kernels for operation '{}'", printable(op_name)), "--kernel",
                 did_you_mean(op_name, known));
    std::vector<std::string> names;
    for (auto* k : it->second) names.push_back(k->name);
    std::erase_if(it->second, [&](auto* k) { return fnmatch(pattern.c_str(), k->name, 0) != 0; });
    if (it->second.empty())
      fail_usage(fmt::format("no kernel of {} matches '{}'", op_name, printable(pattern)), "--kernel",
                 "Kernels: " + join(names, ", ") + ".");
  }
  return lists;
}

}  // namespace

void choose_kernels(CompiledProgram& c, const Recipe& recipe, const Device& device) {
  KernelLists lists = lists_of(recipe, device);
  c.kernels.clear();
  c.workspace.clear();
  for (auto& instr : c.program.code) {
    KernelQuery query{c.program, instr, device};
    const Kernel* chosen = nullptr;
    std::string reasons;
    for (auto* k : lists[instr.op->name]) {
      std::string why = k->reject ? k->reject(query) : "";
      if (why.empty()) {
        chosen = k;
        break;
      }
      reasons += fmt::format("\n  {}: {}", k->name, why);
    }
    if (!chosen)
      fail(fmt::format("no {} kernel takes {} at {}{}", device.kind, instr.op->name, instr.origin.text(),
                       reasons.empty() ? "" : ":" + reasons),
           c.spec.name);
    c.kernels.push_back(chosen);
    c.workspace.push_back(chosen->workspace ? int64_t(chosen->workspace(query)) : 0);
  }
}

}  // namespace crest
