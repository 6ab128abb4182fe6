// Which device each process of a run computes on: a GPU of its own, or all on the CPU.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "comm/rank_group.h"

namespace crest {

// How a rank was started on its machine.
struct RankPlace {
  int local_rank = 0, local_ranks = 1;
  // Whether each rank may see another GPU, so that one visible GPU can be enough: not where one
  // process starts all ranks.
  bool own_view = true;
};

// The device of a rank, as find_device() takes it. spec: what --device says; gpus: how many this
// process sees and can use. Throws a usage error or no_device if there are not enough.
std::string device_of_rank(const std::string& spec, const RankPlace& place, int gpus);

// GPUs that this process can use; 0 for a spec that means none.
int usable_gpus(const std::string& spec);

// Before ranks are started here: whether each finds a device, and a library that connects them.
void check_devices_of_ranks(const std::string& spec, int ranks);

// All ranks call it when they have found their devices: GPUs are connected by NCCL, in the first
// call of group.communicator().
void connect_devices(RankGroup& group, const Device& device);

// Throws if two ranks have the same device. identity: of this rank's, over all machines.
void check_one_each(Communicator& host, const std::string& identity);

}  // namespace crest
