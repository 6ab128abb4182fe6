// Whether all ranks are about to compute the same: ranks that do not would add up numbers that have
// nothing to do with each other, or wait for each other forever.
#pragma once
#include <string>
#include <vector>

#include "comm/comm.h"
#include "plan/compile.h"

namespace crest {

// One row for each instruction of each Program.
std::vector<std::string> program_rows(const CompiledSession& session);

// All ranks call it with their rows. Where one has others than rank 0, all throw: rank 0 an Error
// with the first row that differs, the others PeerLost.
void check_same_rows(Communicator& comm, const std::vector<std::string>& rows);

}  // namespace crest
