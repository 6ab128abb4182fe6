// Ranks as threads of one process: the proof that data parallelism is right, and the way to use it without any library.
#pragma once
#include <memory>
#include <vector>

#include "comm/comm.h"

namespace crest {

// One communicator per rank; all share one rendezvous.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks);

}  // namespace crest
