#include "train/run_session.h"

#include <algorithm>

#include "comm/rank_group.h"
#include "plan/what_fits.h"
#include "train/sampling_use.h"

namespace crest {

CompiledSession run_session(const TrainOptions& o, RunData& data) {
  SessionUse use;
  use.train = use.update = true;
  if (o.sample_every > 0) add_sampling(use, data.tokenizer(), o);
  CompiledSession session = compile(o.recipe, o.device, session_programs(o.recipe, use),
                                    {.stage = o.group ? stage_of_rank(o.recipe, o.group->rank()) : 0});
  const int64_t limit = o.memory_limit / o.recipe.data_parallel;
  check_fits(session, limit);  // before checking the data's length: memory may require a shorter sequence anyway
  data.make_rows();
  if (!data.validates()) return session;
  // Read a split with few windows once, not partly twice.
  int64_t batch = std::clamp<int64_t>(data.val_rows() / o.recipe.data_ranks(), 1, o.recipe.batch);
  extend(session, session_programs(o.recipe, {.validation = true, .validation_batch = batch}));
  check_fits(session, limit);
  return session;
}

}  // namespace crest
