// Ranks as threads of one process: shows that data parallelism is correct, and needs no library.
#pragma once
#include <memory>
#include <vector>

#include "comm/comm.h"

namespace crest {

// One communicator per rank; all share a rendezvous.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks);

}  // namespace crest
