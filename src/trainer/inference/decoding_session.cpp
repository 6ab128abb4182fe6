#include "inference/decoding_session.h"

#include "inference/precision.h"
#include "plan/defaults.h"
#include "plan/what_fits.h"

namespace crest {

CompiledSession compile_for_inference(const LoadedModel& model, const DecodingOptions& o, const SessionUse& use) {
  Recipe recipe;
  recipe.model = model.config;
  recipe.batch = 1;
  recipe.precision = inference_precision(o.precision);
  recipe.pass_settings["weights"] = o.weights;
  recipe = resolve(with_default_precision(recipe, o.device), o.device);
  CompiledSession session = compile(recipe, o.device, session_programs(recipe, use));
  check_fits(session, o.memory_limit);
  return session;
}

DecodingSession::DecodingSession(CompiledSession session)
    : compiled(std::move(session)), executor(compiled), decoder(executor) {}

std::unique_ptr<DecodingSession> DecodingSession::open(const LoadedModel& model, const DecodingOptions& o,
                                                       int64_t cache_length) {
  SessionUse use;
  use.sampling = true;
  use.cache_length = cache_length;
  auto open = std::make_unique<DecodingSession>(compile_for_inference(model, o, use));
  load_weights(open->executor, model);
  return open;
}

}  // namespace crest
