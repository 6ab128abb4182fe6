#include "train/run_samples.h"

#include <fmt/format.h>

#include "comm/rank_group.h"
#include "data/chat.h"
#include "host/stop_signal.h"
#include "run/generate.h"

namespace crest {

std::optional<std::string> sample_of_run(Engine& engine, const RunData& data, const TrainOptions& o, int64_t step,
                                         uint64_t seed) {
  RankGroup* group = o.group;
  const bool leads = !group || group->leads();
  // Rank 0 alone has the tokenizer of --init.
  const bool all = engine.shares_weights(), skipped = (leads && !data.tokenizer()) || StopSignal::requested();
  const bool none = all && group ? group->any(skipped) : skipped;
  if (none || (!all && !leads)) return {};
  if (group) group->doing(fmt::format("sampling after step {}", step));
  std::vector<std::string> texts(size_t(engine.local_ranks()));
  const TextEnds ends = text_ends(o.recipe.model, data.model_text());
  std::vector<int32_t> prompt;
  if (leads) prompt = prompt_tokens(*data.tokenizer(), "", engine.session().recipe.model.vocab, ends.begin);
  if (all && group) prompt = group->from_first(prompt);
  auto on_rank = [&](int r) {
    texts[size_t(r)] =
        generate_text(engine.rank(r), data.tokenizer(), prompt, ends.end, o.sample_tokens, seed + uint64_t(step));
  };
  all ? engine.on_all_ranks(on_rank) : on_rank(0);
  if (!leads) return {};
  return texts[0];
}

}  // namespace crest
