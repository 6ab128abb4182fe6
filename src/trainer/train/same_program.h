// Checks whether all ranks are about to compute the same. Otherwise they would add unrelated
// numbers, or wait for each other. Ranks compare everything with an effect on Programs or on the
// calls between ranks: every setting, unless its row says it is local to a rank, and the data.
#pragma once
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/rank_options.h"
#include "data/dataset.h"
#include "plan/compile.h"
#include "train/run.h"
#include "train/run_data.h"

namespace crest {

// A row for each instruction of each Program.
std::vector<std::string> program_rows(const CompiledSession& session);
// A row for each setting of a recipe and of the ranks' supervision.
std::vector<std::string> recipe_rows(const Recipe& recipe, const RankOptions& ranks);
// A row for each training setting.
std::vector<std::string> training_rows(const TrainOptions& options);
// A row for each split: its number of tokens and a hash of all tokens, or of parts of a large
// split.
std::vector<std::string> data_rows(const Dataset& data);
std::vector<std::string> data_rows(const TrainingData& data);

// Everything compared by the ranks of a run before they start, except Programs.
std::vector<std::string> run_rows(const TrainOptions& options, const Recipe& recipe, const RankOptions& ranks,
                                  const TrainingData& data);

// All ranks call it with their rows. If a rank differs from the first rank of its pipeline stage,
// all throw: rank 0 an Error with the first different row, the others PeerLost. Without a mesh, all
// ranks must agree.
void check_same_rows(Communicator& comm, const std::vector<std::string>& rows, const Mesh& mesh = {});
// Compares the rows of all ranks, and the Programs within each stage.
void check_same_session(Communicator& comm, const std::vector<std::string>& rows, const CompiledSession& session);

}  // namespace crest
