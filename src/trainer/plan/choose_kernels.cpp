#include "plan/choose_kernels.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "device/kernels.h"
#include "plan/roofline_time.h"
#include "program/op.h"

namespace crest {

namespace {

using KernelLists = std::unordered_map<std::string_view, std::vector<const Kernel*>>;

// An operation may have several pins: its kernels match all of them.
[[noreturn]] void fail_pins(const Recipe& recipe, std::string_view op, const Device& device) {
  std::vector<std::string> pins, names;
  for (auto& [op_name, pattern] : recipe.kernels)
    if (op_name == op) pins.push_back("'" + printable(pattern) + "'");
  for (auto& k : kernels_of(device.kind))
    if (op == k.op) names.emplace_back(k.name);
  fail_usage(fmt::format("no kernel of {} matches {}", op, join(pins, " and ")), "--kernel",
             "Kernels: " + join(names, ", ") + ".");
}

KernelLists lists_of(const Recipe& recipe, const Device& device) {
  KernelLists lists;
  for (auto& k : kernels_of(device.kind)) lists[k.op].push_back(&k);
  for (auto& [op_name, pattern] : recipe.kernels) {
    std::vector<std::string> known;
    for (auto& [o, list] : lists) known.emplace_back(o);
    auto it = lists.find(op_name);
    if (it == lists.end())
      fail_usage(fmt::format("no kernels for operation '{}'", printable(op_name)), "--kernel",
                 did_you_mean(op_name, known) + " crest program prints the operations of a step.");
    const char* glob = pattern.c_str();  // clang 14 cannot capture structured bindings
    std::erase_if(it->second, [glob](auto* k) { return fnmatch(glob, k->name, 0) != 0; });
    if (it->second.empty()) fail_pins(recipe, op_name, device);
  }
  return lists;
}

// What to do if no kernel of the operation accepts an instruction.
std::string advice_on_pin(const Recipe& recipe, std::string_view op) {
  for (auto& [op_name, pattern] : recipe.kernels)
    if (op_name == op)
      return fmt::format("--kernel {}={} excludes the other kernels. Leave it out, or pin another one.", op_name,
                         printable(pattern));
  return "";
}

struct Choice {
  const Kernel* kernel;
  int64_t workspace;
};

// Everything with a possible effect on the choice of a kernel, so no names. Layers are alike, so
// asking a library once per problem keeps planning fast. "": the instruction has a body.
std::string signature(const Program& p, const Instr& instr) {
  if (instr.body) return "";
  std::string key = instr.op->name;
  auto add = [&](int64_t x) { key.append(reinterpret_cast<const char*>(&x), sizeof x); };
  add(int64_t(instr.in.size()));
  add(int64_t(instr.phase) * 16 + int64_t(instr.stream));
  std::vector<ValueId> storages;  // values with shared memory, by index
  for (auto* list : {&instr.in, &instr.out})
    for (ValueId id : *list) {
      if (id == no_value) {
        add(-1);
        continue;
      }
      const Value& v = p.at(id);
      add(int64_t(v.dtype) | int64_t(v.role) << 8 | int64_t(v.lifetime) << 16 | int64_t(v.shape.rank()) << 24);
      for (int i = 0; i < v.shape.rank(); ++i) add(v.shape[i]), add(v.layout.strides[i]);
      add(v.layout.offset);
      auto same = std::find(storages.begin(), storages.end(), v.layout.storage);
      add(same - storages.begin());
      if (same == storages.end()) storages.push_back(v.layout.storage);
    }
  for (auto& [name, value] : instr.attrs.entries()) {
    key += name;
    if (auto* text = std::get_if<std::string>(&value)) key += "=" + *text + ";";
    if (auto* whole = std::get_if<int64_t>(&value)) add(*whole);
    if (auto* real = std::get_if<double>(&value)) add(std::bit_cast<int64_t>(*real));
  }
  return key;
}

}  // namespace

void choose_kernels(CompiledProgram& c, const Recipe& recipe, const Device& device) {
  KernelLists lists = lists_of(recipe, device);
  c.kernels.clear();
  c.workspace.clear();
  std::unordered_map<std::string, Choice> known;
  for (auto& instr : c.program.code) {
    std::string key = signature(c.program, instr);
    if (auto it = known.find(key); !key.empty() && it != known.end()) {
      c.kernels.push_back(it->second.kernel);
      c.workspace.push_back(it->second.workspace);
      continue;
    }
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
      throw NoKernel(Exit::failed,
                     fmt::format("no {} kernel supports {} at {}{}", device.kind, instr.op->name, instr.origin.text(),
                                 reasons.empty() ? "" : ":" + reasons),
                     c.spec.name, advice_on_pin(recipe, instr.op->name));
    c.kernels.push_back(chosen);
    c.workspace.push_back(chosen->workspace ? int64_t(chosen->workspace(query)) : 0);
    if (!key.empty()) known[key] = {chosen, c.workspace.back()};
  }
}

std::function<std::string(const Program&, const Instr&)> kernel_finder(const Recipe& recipe, const Device& device) {
  return [lists = lists_of(recipe, device), &device](const Program& program, const Instr& instr) -> std::string {
    auto it = lists.find(instr.op->name);
    if (it == lists.end()) return "";
    for (auto* k : it->second)
      if (!k->reject || k->reject({program, instr, device}).empty())
        return std::string_view(k->name).ends_with(".reference") ? "" : k->name;
    return "";
  };
}

PassContext pass_context(const Recipe& recipe, const ProgramSpec& spec, const Device& device) {
  PassContext context = {recipe, spec.kind, spec.first, spec.last, kernel_finder(recipe, device)};
  // A GPU loads vectors of 16 bytes into its matrix units. CPU vectors may start anywhere.
  if (device.kind == "cuda") context.row_alignment = 16, context.concurrent_kernels = true;
  context.forward_only = spec.forward_only;
  context.stage = spec.stage, context.chunk = spec.chunk;
  RooflineTimes roofline = roofline_of(device);
  context.seconds_for = std::move(roofline.seconds), context.host_link = roofline.host_link;
  return context;
}

}  // namespace crest
