// Finds ranks with different weights or optimizer states: a memory or processor fault without an
// error.
#pragma once
#include <string>

#include "comm/comm.h"
#include "train/engine.h"

namespace crest {

class WeightsDiffer : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

// All ranks call it when nothing is queued. It reads weights and states once. Throws WeightsDiffer
// with rank and tensor on all ranks. where: "step 12".
void check_same_weights(Engine& engine, const std::string& where);

}  // namespace crest
