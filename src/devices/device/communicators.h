// How ranks that are threads of this process communicate on a device.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/comm.h"

namespace crest {

// One communicator per rank, all on one device: host memory, or a GPU that the ranks share.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, const Device& device);

}  // namespace crest
