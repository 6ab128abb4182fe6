// Ranks as threads of one process, to test data parallelism without a library.
#pragma once
#include <memory>
#include <vector>

#include "comm/comm.h"

namespace crest {

// One communicator per rank, with a shared rendezvous.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks);

}  // namespace crest
