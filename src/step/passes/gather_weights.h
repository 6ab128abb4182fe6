// Each rank keeps a shard of the weights and gathers them before use: --shard weights (ZeRO 3) and
// --gather forward.
#pragma once
#include "passes/shard.h"
#include "program/program.h"

namespace crest {

// Adds a rank's shard of the group, and returns it. kept: the whole group keeps its memory, but
// holds the weights only once they are gathered; otherwise it exists while it is used.
ValueId add_shard(Program& program, ValueId group, const Copies& copies, bool kept);

// For Programs with reads of weights: gathers each group before its first use. A group that is not
// kept is released during a pause in its use, and gathered again.
void gather_weights(Program& program, const Copies& copies, bool kept);

}  // namespace crest
