// A saved model in memory, ready to predict one token after the other.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/weights_io.h"
#include "run/executor.h"
#include "run/generate.h"

namespace crest {

struct DecodingSession {
  CompiledSession compiled;
  Executor executor;
  Decoder decoder;
  explicit DecodingSession(CompiledSession session)
      : compiled(std::move(session)), executor(compiled), decoder(executor) {}
  const Recipe& recipe() const { return compiled.recipe; }
};

// precision, weights: the options of crest sample. cache_length: tokens. Throws if it does not fit
// into memory_limit (bytes).
std::unique_ptr<DecodingSession> decoding_session(const LoadedModel& model, const std::string& precision,
                                                  const std::string& weights, int64_t cache_length,
                                                  const Device& device, int64_t memory_limit);

}  // namespace crest
