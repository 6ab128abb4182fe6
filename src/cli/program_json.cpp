#include "cli/program_json.h"

#include <variant>

#include "core/json.h"
#include "ops/op.h"

namespace crest {

namespace {

using Ordered = nlohmann::ordered_json;

std::vector<int64_t> dims(const Shape& s) {
  std::vector<int64_t> d;
  for (int i = 0; i < s.rank(); ++i) d.push_back(s[i]);
  return d;
}

Ordered value_json(const CompiledProgram& c, ValueId id) {
  const Value& v = c.program.at(id);
  Ordered j = {{"name", v.name},
               {"dtype", name(v.dtype)},
               {"shape", dims(v.shape)},
               {"role", name(v.role)},
               {"lifetime", name(v.lifetime)},
               {"storage", c.program.at(v.layout.storage).name},
               {"storage_offset", v.layout.offset},
               {"strides", dims(v.layout.strides)},
               {"bytes", v.bytes()}};
  int block = c.memory.block_of_value[size_t(v.layout.storage)];
  if (block >= 0) j["arena_offset"] = c.memory.blocks[size_t(block)].offset;
  return j;
}

Ordered instr_json(const Program& p, const Instr& i) {
  auto names = [&](const std::vector<ValueId>& ids) {
    Ordered list = Ordered::array();
    for (ValueId v : ids) list.push_back(v == no_value ? Ordered() : Ordered(p.at(v).name));
    return list;
  };
  Ordered attrs = Ordered::object();
  for (auto& e : i.attrs.entries()) std::visit([&](auto& x) { attrs[std::string(e.key)] = x; }, e.value);
  Cost cost = i.op->cost(p, i);
  Ordered j = {{"op", i.op->name},
               {"in", names(i.in)},
               {"out", names(i.out)},
               {"attrs", attrs},
               {"phase", name(i.phase)},
               {"lane", name(i.lane)},
               {"origin", i.origin.scopes()},
               {"flops", cost.flops},
               {"bytes_read", cost.bytes_read},
               {"bytes_written", cost.bytes_written}};
  if (i.body) {
    j["body"] = Ordered::array();
    for (auto& inner : i.body->code) j["body"].push_back(instr_json(*i.body, inner));
  }
  return j;
}

}  // namespace

std::string program_json(const CompiledProgram& c) {
  Ordered j = {{"name", c.spec.name}, {"kind", name(c.spec.kind)}, {"batch", c.spec.batch}, {"seq", c.spec.seq}};
  j["values"] = Ordered::array();
  for (size_t v = 0; v < c.program.values.size(); ++v) j["values"].push_back(value_json(c, ValueId(v)));
  j["instructions"] = Ordered::array();
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    Ordered row = instr_json(c.program, c.program.code[i]);
    row["kernel"] = c.kernels[i]->name;
    row["workspace_bytes"] = c.workspace[i];
    j["instructions"].push_back(row);
  }
  Ordered blocks = Ordered::array();
  for (auto& b : c.memory.blocks)
    blocks.push_back({{"name", b.name},
                      {"category", name(b.category)},
                      {"offset", b.offset},
                      {"bytes", b.bytes},
                      {"first", b.first},
                      {"last", b.last}});
  j["memory"] = {{"arena_bytes", c.memory.bytes},
                 {"live_peak_bytes", c.memory.live_peak},
                 {"peak_instruction", c.memory.peak_instr},
                 {"blocks", blocks}};
  j["passes"] = Ordered::array();
  for (auto& t : c.timings) j["passes"].push_back({{"name", t.name}, {"seconds", t.seconds}});
  return j.dump();
}

}  // namespace crest
