// What the ranks of a run have of each value: whether a sum over the ranks is missing, or was made
// twice.
#pragma once
#include <string_view>

#include "program/program.h"

namespace crest {

// A Program of several ranks.
enum class RankProgram : uint8_t {
  micro_step,       // leaves partial sums for the next one
  last_micro_step,  // leaves gradients and loss for the update and the host
  validation,       // leaves the loss
  update
};

// Infers for every value whether all ranks have the same (replicated), each has an addend of it
// (partial), its shard (ops/shards.cpp), or something of its own (local: activations). Throws an
// internal error that names the instruction if
//   - a partial sum is used as if it were the sum, or is what a Program leaves;
//   - something is summed that is no partial sum, or that a reduce_scatter has used up;
//   - shards and whole tensors are mixed;
//   - shards of weights are updated and not gathered, or gathered twice;
//   - weights of which a rank keeps a shard are read and not gathered, or gathered and not read.
void verify_placements(const Program& program, RankProgram kind, std::string_view after);

}  // namespace crest
