// Places of the operands of a compiled session's instructions.
#pragma once
#include "plan/compile.h"

namespace crest {

struct Address {
  enum class Arena : uint8_t { none, transient, persistent, host };
  Arena arena = Arena::none;  // none: of a value without a use
  int64_t offset = 0;         // bytes
};
// Of a value with lifetime `slot`: in the first slot.
Address address_of(const CompiledSession& session, const CompiledProgram& program, ValueId value);

// The bytes of the arenas read and written by every instruction of a Program: its operands and its
// workspace.
Accesses accesses_by_address(const CompiledSession& session, const CompiledProgram& program);

}  // namespace crest
