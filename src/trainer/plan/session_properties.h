// The passes' effects on a session's Programs, for printed text. A setting is only a request.
#pragma once
#include <algorithm>

#include "passes/int8.h"
#include "passes/loss_chunk.h"
#include "plan/compile.h"

namespace crest {

// The largest value in any Program, since each has the properties of its own passes.
inline int64_t program_property(const CompiledSession& session, const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  for (auto& c : session.programs) value = std::max(value, c.program.properties.integer(name, otherwise));
  return value;
}

// Tokens in a chunk of the loss; 0: not chunked.
inline int64_t loss_chunk(const CompiledSession& session) { return program_property(session, loss_chunk_property, 0); }
// The number of 8-bit matrices.
inline int64_t int8_weights(const CompiledSession& session) {
  return program_property(session, int8_weights_property, 0);
}
// Whether each rank along the axis keeps only a shard of the weights (or of optimizer state).
inline bool keeps_shards(const CompiledSession& session, Role role, Axis axis) {
  return std::any_of(session.programs.begin(), session.programs.end(), [&](auto& c) {
    return std::any_of(c.program.values.begin(), c.program.values.end(), [&](const Value& v) {
      return v.role == role && v.lifetime == Lifetime::persistent &&
             v.placement[size_t(axis)].kind == Placement::Kind::shard;
    });
  });
}

}  // namespace crest
