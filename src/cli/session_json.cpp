#include "cli/session_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/recipe_json.h"
#include "measure/profile_rows.h"
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

Json program_document(const CompiledSession& s, const std::vector<int>& calls) {
  Profile profile;
  describe_session(profile, s, calls);
  Json all = to_json(profile);
  for (auto& row : all["instrs"]) row.erase("ms"), row.erase("floor_ms");
  return {{"calls", all["calls"]}, {"instrs", all["instrs"]}};
}

}  // namespace crest
