#include "plan/handover.h"

#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "program/place.h"
#include "program/placements.h"

namespace crest {

namespace {

// The content of memory, and its writer.
struct Held {
  Placement placement;
  std::string by;
};

// Two steps, because the second starts with results of the first.
std::vector<const CompiledProgram*> calls(const CompiledSession& s) {
  static constexpr const char* step[] = {"train",  "train.first", "train.next", "train.next", "train.last",
                                         "update", "validation",  "prefill",    "decode"};
  std::vector<const CompiledProgram*> list;
  auto call = [&](const std::string& name) {
    for (auto& c : s.programs)  // segments run in order
      if (c.spec.name == name || c.spec.of == name) list.push_back(&c);
  };
  call("start");
  for (int n = 0; n < 2; ++n)
    for (const char* name : step) call(name);
  return list;
}

void verify_along(const CompiledSession& s, Axis axis) {
  std::map<const CompiledProgram*, Handover> of;
  std::map<std::string, Held> memory;  // by storage
  bool trains = false, begins = false;
  for (auto& c : s.programs)
    if (c.spec.kind == ProgramKind::train) trains = true, begins |= c.spec.first;
  // A Program may be compiled alone to be printed. A later micro step reads what the first one
  // left.
  if (trains && !begins) return;
  for (const CompiledProgram* c : calls(s)) {
    auto [it, added] = of.try_emplace(c);
    if (added) it->second = handover(c->program, axis);
    for (auto& read : it->second.reads) {
      auto held = memory.find(read.storage);
      // The host writes weights and states before any Program does.
      if (held == memory.end() && read.gradient && trains)
        fail_internal(fmt::format("program {} reads %{}, which no program has left", c->spec.name, read.value),
                      "between programs");
      if (held == memory.end() || held->second.placement == read.placement) continue;
      std::string of_storage = read.value == read.storage ? "" : fmt::format(" of %{}", read.storage);
      fail_internal(fmt::format("program {} leaves %{}{} {}, but program {} reads it {}", held->second.by, read.value,
                                of_storage, text(held->second.placement), c->spec.name, text(read.placement)),
                    fmt::format("between programs, axis {}", name(axis)));
    }
    for (auto& [storage, placement] : it->second.leaves) memory[storage] = {placement, c->spec.name};
  }
}

}  // namespace

void verify_handover(const CompiledSession& session) {
  for (const CompiledProgram& c : session.programs)
    if (!communicates_in_one_order(c.program))
      fail_internal("collectives that are on two streams have no order", "program " + c.spec.name);
  const Mesh mesh = session.recipe.layout();
  for (Axis axis : axes_outermost_first)
    if (mesh.size(axis) > 1) verify_along(session, axis);
}

}  // namespace crest
