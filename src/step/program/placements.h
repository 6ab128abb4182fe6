// What the ranks of a run have of each value, inferred along every axis of the mesh: whether a sum
// over the ranks is missing, or was made twice.
#pragma once
#include <string_view>

#include "program/program.h"

namespace crest {

// Infers Value::placement of each instruction's outputs. Inputs, weights and states have declared
// placements; the rest follows from the rules of the operations (program/place.h). Throws an
// internal error with the instruction's name if
//   - a partial sum is used as if it were the sum, or is what the last Program of a step leaves;
//   - something is summed that is no partial sum, or that a reduce_scatter has used up;
//   - shards and whole tensors are mixed;
//   - shards of weights are updated and not gathered, or gathered twice;
//   - weights of which a rank keeps a shard are read and not gathered, or gathered and not read.
void verify_placements(Program& program, std::string_view after);

// The same without the first of these checks for outputs: before passes have added what sums them.
void infer_placements(Program& program, std::string_view after, bool outputs = false);

}  // namespace crest
