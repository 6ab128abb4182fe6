#include "train/sampling_use.h"

#include <algorithm>
#include <optional>

#include "run/generate.h"

namespace crest {

void add_sampling(SessionUse& use, const Tokenizer* tokenizer, const TrainOptions& o) {
  // If the data has no tokenizer, the model may bring one, with an equally short prompt.
  constexpr int64_t most_unknown = 16;
  int64_t prompt = most_unknown;
  if (tokenizer)  // with or without a begin token
    prompt = int64_t(std::max(prompt_tokens(*tokenizer, "", INT64_MAX, std::nullopt).size(),
                              prompt_tokens(*tokenizer, "", INT64_MAX, 0U).size()));
  use.sampling = true;
  use.cache_length = std::min(o.recipe.model.cached_context(), prompt + o.sample_tokens);
}

}  // namespace crest
