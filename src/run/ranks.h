// Ranks as threads of this process.
#pragma once
#include <functional>

namespace crest {

// Calls work(0) .. work(ranks - 1), each on a thread of its own (one rank: on this one), and waits for all. The first
// error, by rank, is thrown afterwards.
void run_on_ranks(int ranks, const std::function<void(int)>& work);

}  // namespace crest
