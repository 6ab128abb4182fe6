#include "plan/addresses.h"

#include <fmt/format.h>

#include "core/error.h"

namespace crest {

Address address_of(const CompiledSession& s, const CompiledProgram& c, ValueId v) {
  const Value& value = c.program.at(v);
  const Value& root = c.program.at(value.layout.storage);
  int64_t offset = value.layout.offset * int64_t(size_of(value.dtype));
  int block = c.memory.block_of_value[size_t(value.layout.storage)];
  if (block >= 0) return {Address::Arena::transient, c.memory.blocks[size_t(block)].offset + offset};
  if (root.lifetime == Lifetime::micro_step && root.space == MemorySpace::host) {
    block = c.host.block_of_value[size_t(value.layout.storage)];
    const int64_t first = s.host_bytes - s.host_activations;
    return block < 0 ? Address() : Address{Address::Arena::host, first + c.host.blocks[size_t(block)].offset + offset};
  }
  if (root.lifetime == Lifetime::micro_step) return {};
  if (root.lifetime == Lifetime::slot)
    if (const SlotArea* area = s.area_of(c.spec))
      for (auto& b : area->blocks)
        if (b.name == root.name) return {Address::Arena::persistent, area->offset + b.offset + offset};
  for (auto& b : s.persistent)
    if (b.name == root.name) return {Address::Arena::persistent, b.offset + offset};
  for (auto& b : s.host)
    if (b.name == root.name) return {Address::Arena::host, b.offset + offset};
  for (auto& b : s.gradients)
    if (b.name == root.name) return {Address::Arena::transient, b.offset + offset};
  fail_internal(fmt::format("%{} has no address", value.name), c.spec.name);
}

Accesses accesses_by_address(const CompiledSession& s, const CompiledProgram& c) {
  Accesses all(c.program.code.size());
  for (size_t i = 0; i < all.size(); ++i) {
    auto add = [&](ValueId v, bool writes) {
      if (v == no_value) return;
      Address a = address_of(s, c, v);
      if (a.arena == Address::Arena::none) fail_internal("an operand has no address", c.spec.name);
      all[i].push_back(access_of(c.program.at(v), int(a.arena), a.offset, writes));
    };
    for (ValueId v : c.program.code[i].in) add(v, false);
    for (ValueId v : c.program.code[i].out) add(v, true);
    if (int block = c.memory.block_of_instr[i]; block >= 0) {
      int64_t offset = c.memory.blocks[size_t(block)].offset;
      all[i].push_back({int(Address::Arena::transient), offset, offset + c.workspace[i], true, no_value, 0, 0});
    }
  }
  return all;
}

}  // namespace crest
