// The device of each process of a run: a GPU of its own, or all on the CPU.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "comm/rank_group.h"

namespace crest {

// How a rank was started on its machine.
struct RankPlace {
  int local_rank = 0, local_ranks = 1;
  // Whether each rank may see another GPU, so one visible GPU can be enough: not if one process
  // starts all ranks.
  bool own_view = true;
};

// The device of a rank, for find_device(). spec: of --device; gpus: number of GPUs visible to this
// process and usable. Throws a usage error or no_device if there are not enough.
std::string device_of_rank(const std::string& spec, const RankPlace& place, int gpus);

// GPUs usable by this process; 0 for a spec without GPUs.
int usable_gpus(const std::string& spec);

// Before starting ranks here: whether each finds a device, and a library to connect them.
void check_devices_of_ranks(const std::string& spec, int ranks);

// All ranks call it when they have found their devices: GPUs are connected by NCCL, in the first
// call of group.communicator().
void connect_devices(RankGroup& group, const Device& device);

// Throws if two ranks have the same device. identity: of this rank's, over all machines.
void check_one_each(Communicator& host, const std::string& identity);

}  // namespace crest
