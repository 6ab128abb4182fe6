// The Programs of a training run.
#pragma once
#include "plan/compile.h"
#include "train/run_data.h"

namespace crest {

// Training, update, validation and sampling, for this process's pipeline stage. Prepares the rows
// of the data, because they decide the size of validation. Throws if the session does not fit.
CompiledSession run_session(const TrainOptions& options, RunData& data);

}  // namespace crest
