// Small values and texts between all ranks, by collectives. All ranks call the same functions in
// the same order. For communicators in host memory.
#pragma once
#include <string>
#include <vector>

#include "comm/comm.h"

namespace crest {

// The values of all ranks, by rank. All ranks give equally many.
std::vector<std::vector<double>> gather(Communicator& comm, const std::vector<double>& own);
// The same for lists of different lengths.
std::vector<std::vector<double>> gather_lists(Communicator& comm, const std::vector<double>& own);
// The number of a rank in a group of Communicator::split.
int place_in(const std::vector<int>& members, int rank);
// The text of rank `root`.
std::string broadcast_text(Communicator& comm, const std::string& text, int root);

}  // namespace crest
