// Ranks as threads of one process on one shared GPU: every combination of settings runs on one GPU,
// for tests.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/comm.h"

namespace crest::cuda {

// One communicator per rank. Sums are in fp32, in rank order, by Crest's own kernel. Each call
// waits on the host for all ranks to make it, so it cannot be captured in a graph.
std::vector<std::unique_ptr<Communicator>> make_shared_gpu_communicators(int ranks, const Device& device);

}  // namespace crest::cuda
