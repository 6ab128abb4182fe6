#include "lab/detail.h"

#include <map>
#include <set>

#include "core/text.h"
#include "profile/kernel_name.h"

namespace crest::lab {

static Row instruction_row(const ProfileInstr& i) {
  Row r;
  r.keys = {{"row", "instr"},
            {"program", i.program},
            {"op", i.op},
            {"kernel", i.kernel},
            {"phase", i.phase},
            {"lane", i.stream},
            {"class", i.op_class},
            {"scope", join(i.scopes, "+")},
            {"layer", std::to_string(i.layer)},
            {"arithmetic", i.arithmetic},
            {"dtype", i.type.substr(0, i.type.find('['))}};
  r.columns = {{"ms", Value::number(i.ms)},
               {"floor_ms", Value::number(i.floor_ms)},
               {"flops", Value::number(i.flops)},
               {"bytes", Value::number(i.bytes)},
               {"calls", Value::number(i.calls)}};
  return r;
}

// A device kernel of an instruction. On a CPU an instruction is one call of its own kernel.
static Row kernel_row(const ProfileInstr& i, const std::string& kernel, double ms, double launches) {
  Row r;
  r.keys = {{"row", "kernel"},  {"program", i.program}, {"op", i.op},    {"kernel", i.kernel},
            {"phase", i.phase}, {"class", i.op_class},  {"name", kernel}};
  r.columns = {{"kernel_ms", Value::number(ms)}, {"kernel_launches", Value::number(launches)}};
  return r;
}

Table detail_rows(const Profile& p) {
  Table table;
  std::map<std::pair<std::string, int>, std::string> phases;  // by Program and index
  for (auto& i : p.instrs) {
    table.rows.push_back(instruction_row(i));
    phases[{i.program, i.index}] = i.phase;
    if (p.kernels.empty()) table.rows.push_back(kernel_row(i, i.kernel, i.ms, i.calls));
  }
  for (auto& k : p.kernels)
    if (k.instr >= 0)
      table.rows.push_back(kernel_row(p.instrs[size_t(k.instr)], short_kernel(k.name), k.ms, double(k.count)));
  for (auto& b : p.memory.blocks) {
    Row r;
    r.keys = {{"row", "block"},
              {"program", b.program},
              {"name", b.name},
              {"category", b.category},
              {"phase", b.phase},
              {"scope", b.scope},
              {"layer", std::to_string(b.layer)},
              {"until", phases[{b.program, b.last}]}};
    r.columns["block_bytes"] = Value::number(double(b.bytes));
    table.rows.push_back(std::move(r));
  }
  return table;
}

Table value_rows(const CompiledSession& session) {
  Table table;
  std::set<std::string> seen;
  for (auto& c : session.programs)
    for (auto& v : c.program.values) {
      if (!seen.insert(v.name).second) continue;
      Row r;
      r.keys = {{"row", "value"},
                {"program", c.spec.name},
                {"name", v.name},
                {"role", std::string(name(v.role))},
                {"lifetime", std::string(name(v.lifetime))},
                {"dtype", std::string(name(v.dtype))}};
      r.columns = {{"value_bytes", Value::number(double(v.bytes()))}, {"elements", Value::number(double(v.numel()))}};
      table.rows.push_back(std::move(r));
    }
  return table;
}

}  // namespace crest::lab
