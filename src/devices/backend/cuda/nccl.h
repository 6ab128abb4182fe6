// Ranks as processes on GPUs: NVIDIA's library NCCL, opened at run time.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "comm/comm.h"
#include "comm/control.h"

namespace crest {

// "" if NCCL can be used here, else the missing part.
std::string nccl_problem();
std::string nccl_version();  // "2.27.3"; "" when it is not there

// As make_gloo_communicator (comm/gloo.h), for data on `device`, one device a rank. Calls can be
// captured in a graph; the graph must be gone before the communicator is.
std::unique_ptr<Communicator> make_nccl_communicator(Control& control, int ranks, const std::string& group,
                                                     const Device& device, double seconds);

}  // namespace crest
