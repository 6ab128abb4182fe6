// What passes made of a session's Programs, for text: a setting says only what was requested.
#pragma once
#include <algorithm>

#include "passes/int8.h"
#include "passes/loss_chunk.h"
#include "plan/compile.h"
#include "program/shards.h"

namespace crest {

// The largest value over the Programs: each has the properties of its own passes.
inline int64_t program_property(const CompiledSession& session, const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  for (auto& c : session.programs) value = std::max(value, c.program.properties.integer(name, otherwise));
  return value;
}

// Tokens whose logits exist at a time, where the loss is chunked; else 0.
inline int64_t loss_chunk(const CompiledSession& session) { return program_property(session, loss_chunk_property, 0); }
// Matrices of 8 bits.
inline int64_t int8_weights(const CompiledSession& session) {
  return program_property(session, int8_weights_property, 0);
}
// Shards of the optimizer's state, one a rank; 1: every rank has all of it.
inline int64_t optimizer_shards(const CompiledSession& session) {
  return program_property(session, shards_property, 1);
}

// Shards of the weights, one a rank; 1: every rank has all of them.
inline int64_t weight_shards(const CompiledSession& session) {
  return program_property(session, weight_shards_property, 1);
}

}  // namespace crest
