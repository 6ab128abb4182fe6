// Small values and texts between all ranks, on top of the collectives. All ranks call the same
// functions in the same order. For communicators that work in host memory.
#pragma once
#include <string>
#include <vector>

#include "comm/comm.h"

namespace crest {

// The values of all ranks, by rank; all ranks give equally many.
std::vector<std::vector<double>> gather(Communicator& comm, const std::vector<double>& own);
// The number of a rank among those of a group of Communicator::split.
int place_in(const std::vector<int>& members, int rank);
// The text of rank `root`.
std::string broadcast_text(Communicator& comm, const std::string& text, int root);

}  // namespace crest
