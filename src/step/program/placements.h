// What the ranks of a run have of each value, inferred along every axis of the mesh: whether a sum
// over the ranks is missing, or was made twice.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

// Whether all collectives are on one stream, so all ranks run them in one order. Along the data
// axis alone each one waits for results of the one before it.
bool communicates_in_one_order(const Program& program);

// Along one axis: what a verified Program expects in memory that outlives it, and what it leaves
// there. Programs share this memory by the names of its storages.
struct Handover {
  struct Read {
    std::string storage, value;
    Placement placement;
    bool gradient;  // which only Programs make
  };
  std::vector<Read> reads;                  // before the Program writes there
  std::map<std::string, Placement> leaves;  // by storage, where it writes or has nothing; own: parts differ
};
Handover handover(const Program& program, Axis axis);

}  // namespace crest
