// Where a compiled session keeps what its instructions use.
#pragma once
#include "plan/compile.h"

namespace crest {

struct Address {
  enum class Arena : uint8_t { none, transient, persistent, host };
  Arena arena = Arena::none;  // none: of a value that no instruction uses
  int64_t offset = 0;         // bytes
};
Address address_of(const CompiledSession& session, const CompiledProgram& program, ValueId value);

// The bytes of the arenas that every instruction of a Program reads and writes: its operands and
// its workspace.
Accesses accesses_by_address(const CompiledSession& session, const CompiledProgram& program);

}  // namespace crest
