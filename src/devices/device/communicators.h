// Communication on a device between ranks as threads of this process.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/comm.h"

namespace crest {

// One communicator per rank, all on one device: host memory, or a shared GPU.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, const Device& device);

}  // namespace crest
