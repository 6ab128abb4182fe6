// Builds the forward Program in fp32, with composite operations, from a configuration. Each setting
// is a pass over this Program.
#pragma once
#include "model/config.h"
#include "program/program.h"

namespace crest {

// The purpose of a Program in a session. train: one micro step (autograd adds the backward half).
// update: parameters and gradients only (the optimizer pass adds the instructions). validation:
// loss without gradients. prefill, decode: logits of the next token, with a key/value cache. start:
// prepares further inputs of a run's first step from the weights (declares parameters only).
enum class ProgramKind : uint8_t { train, update, validation, prefill, decode, start };
std::string_view name(ProgramKind);

// `batch` sequences of `seq` tokens. cache_length: capacity of the key/value cache in tokens
// (prefill, decode).
struct ForwardShape {
  ProgramKind kind = ProgramKind::train;
  int64_t batch = 1, seq = 1;
  int64_t cache_length = 0;
  bool all_logits = false;  // prefill: of every token, not only the last one
};

// The host finds these values by name. Inputs: `tokens` and `targets` i32[batch, seq], `scalars`.
// Outputs: `loss` f32[1] (train, validation; mean over the tokens of the micro batch) or `logits`
// [batch, 1, vocab], f32 or 16-bit ([batch, seq, vocab] with all_logits). `cache.N` per layer.
Program build_model(const ModelConfig& config, const ForwardShape& shape);

}  // namespace crest
