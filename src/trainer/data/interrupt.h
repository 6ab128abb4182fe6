// Ctrl-C while text is prepared.
#pragma once
#include "core/error.h"
#include "host/stop_signal.h"

namespace crest {

// Throws `interrupted` once a signal has come (StopSignal). Called wherever the preparation may
// stay for a second: between blocks, shards, files and merges, and while it waits for input.
inline void check_interrupted() {
  if (StopSignal::requested())
    throw Error(Exit::interrupted, "interrupted", "preparing the data", "No files were left behind.");
}

}  // namespace crest
