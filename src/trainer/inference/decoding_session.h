// A saved model in memory, with the Programs for writing text.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/weights_io.h"
#include "plan/compile.h"
#include "run/generate.h"

namespace crest {

struct DecodingOptions {
  std::string precision = "auto", weights = "float";  // as the flags of these names
  Device device;
  int64_t memory_limit = 0;  // bytes
};

// The Programs of a model for a batch of one. Throws if they need more than the limit of memory.
CompiledSession compile_for_inference(const LoadedModel& model, const DecodingOptions& options, const SessionUse& use);

struct DecodingSession {
  // Compiles the Programs and loads the weights. cache_length: tokens of its cache. Throws if it
  // needs more than the limit of memory.
  static std::unique_ptr<DecodingSession> open(const LoadedModel& model, const DecodingOptions& options,
                                               int64_t cache_length);
  explicit DecodingSession(CompiledSession session);

  CompiledSession compiled;
  Executor executor;
  Decoder decoder;
  const Recipe& recipe() const { return compiled.recipe; }
};

}  // namespace crest
