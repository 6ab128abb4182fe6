// The validation of a run: the loss on the validation split of its data, or of each of its sources.
#pragma once
#include <cstdint>

#include "train/engine.h"
#include "train/run_data.h"
#include "train/step_row.h"

namespace crest {

class RankGroup;

// Validates after `step` steps. With several sources, val_loss is the mean of their losses with
// their shares of the samples; sources without a validation split do not count. All ranks call it
// together. Throws RunData::Failed or Engine::PeerDidNotRead if a rank could not read its samples.
ValidationRow validate(Engine& engine, RunData& data, int64_t step, RankGroup* group);

// Batches and rows per validation, as `crest train` states them: of the source with the most.
struct ValidationSize {
  int64_t batches = 0, rows = 0;  // rows of one batch; 0: no validation
};
ValidationSize validation_size(const Engine& engine, const RunData& data);

}  // namespace crest
