#include "cli/session_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/recipe_json.h"
#include "ops/op.h"

namespace crest {

using Json = nlohmann::ordered_json;

std::vector<const Block*> largest_blocks(const CompiledSession& session, int rows) {
  std::vector<const Block*> list;
  for (auto& b : session.largest().memory.blocks) list.push_back(&b);
  std::stable_sort(list.begin(), list.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  list.resize(std::min(list.size(), size_t(rows)));
  return list;
}

static Json peak_to_json(const CompiledProgram& c) {
  const MemoryPlan& m = c.memory;
  if (m.peak_instr < 0) return nullptr;
  const Instr& i = c.program.code[size_t(m.peak_instr)];
  return {{"program", c.spec.name},
          {"instruction", m.peak_instr},
          {"op", i.op->name},
          {"origin", i.origin.text()},
          {"phase", name(i.phase)},
          {"live_bytes", m.live_peak},
          {"by_category", categories_to_json(m.at_peak)}};
}

Json memory_to_json(const CompiledSession& s, int rows) {
  int64_t ranks = s.recipe.data_parallel;
  Json blocks = Json::array();
  for (const Block* b : largest_blocks(s, rows))
    blocks.push_back({{"name", b->name},
                      {"bytes", b->bytes},
                      {"offset", b->offset},
                      {"first_instruction", b->first},
                      {"last_instruction", b->last},
                      {"category", name(b->category)}});
  return {{"planned_bytes", s.planned_bytes() * ranks},
          {"persistent_bytes", s.persistent_bytes * ranks},
          {"transient_bytes", s.transient_bytes * ranks},
          {"ranks", ranks},
          {"by_category", categories_to_json(s.by_category(), ranks)},
          {"peak", peak_to_json(s.largest())},
          {"largest_blocks", blocks}};
}

Json programs_to_json(const CompiledSession& s) {
  Json programs = Json::array();
  for (auto& c : s.programs)
    programs.push_back(
        {{"name", c.spec.name}, {"instructions", c.program.code.size()}, {"transient_bytes", c.memory.bytes}});
  return programs;
}

Json plan_document(const CompiledSession& s) {
  constexpr int blocks = 20;
  return {{"model", model_to_json(s.recipe.model)},
          {"memory", memory_to_json(s, blocks)},
          {"programs", programs_to_json(s)}};
}

// What the peak rate of an instruction's arithmetic is of.
static const char* arithmetic(const CompiledSession& s, const Program& p, const Instr& i) {
  for (ValueId v : i.in) {
    if (v == no_value) continue;
    if (p.at(v).dtype == DType::bf16) return "bf16";
    if (p.at(v).dtype == DType::f16) return "fp16";
  }
  bool product = i.op->op_class == OpClass::contraction || i.op->op_class == OpClass::attention;
  return product && s.recipe.precision == "tf32" ? "tf32" : "fp32";
}

static Json instr_to_json(const CompiledSession& s, const CompiledProgram& c, size_t index, int calls) {
  const Program& p = c.program;
  const Instr& i = p.code[index];
  Json parts = Json::array();
  if (i.body)
    for (auto& inner : i.body->code) parts.push_back(inner.op->name);
  Cost cost = i.op->cost(p, i);
  const Value& result = p.at(i.out.at(0));
  std::string shape;
  for (int d = 0; d < result.shape.rank(); ++d) shape += (d ? "," : "") + std::to_string(result.shape[d]);
  return {{"program", c.spec.name},
          {"index", index},
          {"op", i.op->name},
          {"parts", parts},
          {"kernel", c.kernels[index]->name},
          {"phase", name(i.phase)},
          {"lane", name(i.lane)},
          {"op_class", name(i.op->op_class)},
          {"scopes", i.origin.scopes()},
          {"layer", i.origin.layer()},
          {"type", std::string(name(result.dtype)) + "[" + shape + "]"},
          {"arithmetic", arithmetic(s, p, i)},
          {"calls", calls},
          {"flops", cost.flops * calls},
          {"bytes", cost.bytes() * calls}};
}

Json program_document(const CompiledSession& s, const std::vector<int>& calls) {
  Json names = Json::array(), rows = Json::array();
  std::map<int, int> count;  // by Program
  for (int program : calls) {
    names.push_back(s.programs[size_t(program)].spec.name);
    ++count[program];
  }
  for (auto [program, times] : count) {
    const CompiledProgram& c = s.programs[size_t(program)];
    for (size_t i = 0; i < c.program.code.size(); ++i) rows.push_back(instr_to_json(s, c, i, times));
  }
  return {{"calls", names}, {"instrs", rows}};
}

}  // namespace crest
