// An estimate of the memory of NCCL's communicators on each GPU, counted by the plan.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "program/mesh.h"

namespace crest {

struct CompiledProgram;
struct CompiledSession;

struct CommunicatorMemory {
  Axes axes;      // of the mesh; all: every rank
  int ranks = 1;  // of a group
  int peers = 0;  // ranks that this one sends to or receives from, outside collectives
  int64_t bytes = 0;
};

// The sets of axes along which the Programs communicate.
std::set<Axes> axes_in_use(const CompiledSession& session);
// One for all ranks, and one for each set of axes with smaller groups. Empty if the ranks are no
// processes on GPUs.
std::vector<CommunicatorMemory> communicator_memory(const CompiledSession& session);
int64_t total_bytes(const std::vector<CommunicatorMemory>& communicators);
// Whether copy engines move what a kernel of this name exchanges between ranks.
bool by_copy_engines(std::string_view kernel);
// The instructions of copy engines, by the axes of their communicator. Throws an internal error if
// copies between the same ranks are on two streams: they would take down each other's flags
// (program/barriers.h).
std::map<Axes, std::vector<int>> copying_instructions(const CompiledSession& session, const CompiledProgram& program);

}  // namespace crest
