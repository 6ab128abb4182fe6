// Whether all ranks are about to compute the same: ranks that do not would add up numbers that have
// nothing to do with each other, or wait for each other. Ranks compare whatever shapes a Program or
// a call between them: every setting, unless its row declares it local to a rank, and the data.
#pragma once
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/rank_options.h"
#include "data/dataset.h"
#include "plan/compile.h"
#include "train/run.h"

namespace crest {

// One row for each instruction of each Program.
std::vector<std::string> program_rows(const CompiledSession& session);
// One row for each setting of a recipe, and of how ranks watch each other.
std::vector<std::string> recipe_rows(const Recipe& recipe, const RankOptions& ranks);
// The same for the settings of training.
std::vector<std::string> training_rows(const TrainOptions& options);
// One row for each split: its tokens, and a hash of them all, or of pieces of a large split.
std::vector<std::string> data_rows(const Dataset& data);

// Everything compared by the ranks of a run before they start, besides their Programs.
std::vector<std::string> run_rows(const TrainOptions& options, const Recipe& recipe, const RankOptions& ranks,
                                  const Dataset& data);

// All ranks call it with their rows. If one differs from the first rank of its pipeline stage, all
// throw: rank 0 an Error with the first different row, the others PeerLost. Without a mesh all
// ranks are alike.
void check_same_rows(Communicator& comm, const std::vector<std::string>& rows, const Mesh& mesh = {});
// The rows for all ranks, and each stage's Programs.
void check_same_session(Communicator& comm, const std::vector<std::string>& rows, const CompiledSession& session);

}  // namespace crest
