// Addresses of the operands of a compiled session's instructions.
#pragma once
#include "plan/compile.h"

namespace crest {

struct Address {
  enum class Arena : uint8_t { none, transient, persistent, host };
  Arena arena = Arena::none;  // none: the value is unused
  int64_t offset = 0;         // bytes
};
// For values with lifetime `slot`: the address in the first slot.
Address address_of(const CompiledSession& session, const CompiledProgram& program, ValueId value);

// The arena bytes read and written by each instruction of a Program: operands and workspace.
Accesses accesses_by_address(const CompiledSession& session, const CompiledProgram& program);

}  // namespace crest
