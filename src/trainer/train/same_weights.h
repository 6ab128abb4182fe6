// Finds ranks with different weights or optimizer states: a fault of memory or of a processor that
// shows in no error.
#pragma once
#include <string>

#include "comm/comm.h"
#include "train/engine.h"

namespace crest {

class WeightsDiffer : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

// All ranks call it when nothing is queued; it costs one reading of weights and states. Throws
// WeightsDiffer with the rank and the tensor, on all ranks. where: "step 12".
void check_same_weights(Engine& engine, const std::string& where);

}  // namespace crest
