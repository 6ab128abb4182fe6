// The part of each value on each rank, inferred along every axis of the mesh. It shows missing and
// repeated sums over the ranks.
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
//   - a partial sum is used as the sum, or is an output of the last Program of a step;
//   - a sum is taken of a complete value, or of one already used up by reduce_scatter;
//   - shards and whole tensors are mixed;
//   - shards of weights are updated and not gathered, or gathered twice;
//   - sharded weights are read and not gathered, or gathered and not read.
void verify_placements(Program& program, std::string_view after);

// The same, but partial outputs are allowed: passes have not yet added the collectives.
void infer_placements(Program& program, std::string_view after, bool outputs = false);

// Whether all collectives are on one stream, so all ranks run them in one order. Along the data
// axis alone each one waits for results of the one before it.
bool communicates_in_one_order(const Program& program);

// Along one axis: the placements a verified Program expects in memory with a longer life than its
// own, and the placements it leaves there. Programs share this memory by storage name.
struct Handover {
  struct Read {
    std::string storage, value;
    Placement placement;
    bool gradient;  // made by Programs only, never by the host
  };
  std::vector<Read> reads;                  // before the Program writes there
  std::map<std::string, Placement> leaves;  // by storage, where it writes or has nothing; own: parts differ
};
Handover handover(const Program& program, Axis axis);

}  // namespace crest
