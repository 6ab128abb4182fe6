#include "inference/decoding_session.h"

#include "inference/precision.h"
#include "plan/compile.h"
#include "plan/defaults.h"
#include "plan/what_fits.h"

namespace crest {

std::unique_ptr<DecodingSession> decoding_session(const LoadedModel& model, const std::string& precision,
                                                  const std::string& weights, int64_t cache_length,
                                                  const Device& device, int64_t memory_limit) {
  Recipe recipe;
  recipe.model = model.config;
  recipe.batch = 1;
  recipe.precision = inference_precision(precision);
  recipe.pass_settings["weights"] = weights;
  recipe = resolve(with_default_precision(recipe, device), device);
  SessionUse use;
  use.sampling = true;
  use.cache_length = cache_length;
  CompiledSession compiled = compile(recipe, device, session_programs(recipe, use));
  check_fits(compiled, memory_limit);
  auto session = std::make_unique<DecodingSession>(std::move(compiled));
  load_weights(session->executor, model);
  return session;
}

}  // namespace crest
