// Configuration -> forward Program in fp32 with composite operations. Every setting is a pass that
// rewrites it.
#pragma once
#include "model/config.h"
#include "program/program.h"

namespace crest {

// The purpose of a Program in a session. train: one micro step (autograd adds the backward half).
// update: parameters and gradients only (the optimizer pass adds the instructions). validation:
// loss without gradients. prefill, decode: logits of the next token with a key/value cache. start:
// what the first step of a run reads besides weights, made of them (parameters only).
enum class ProgramKind : uint8_t { train, update, validation, prefill, decode, start };
std::string_view name(ProgramKind);

// `batch` sequences of `seq` tokens. cache_length: capacity of the key/value cache in tokens
// (prefill, decode).
struct ForwardShape {
  ProgramKind kind = ProgramKind::train;
  int64_t batch = 1, seq = 1;
  int64_t cache_length = 0;
};

// Values that the host finds by name. Inputs: `tokens` and `targets` i32[batch, seq], `scalars`.
// Outputs: `loss` f32[1] (train, validation; the mean over all tokens of the micro batch) or
// `logits`, f32 or 16-bit, [batch, 1, vocab]. `cache.N` per layer.
Program build_model(const ModelConfig& config, const ForwardShape& shape);

}  // namespace crest
