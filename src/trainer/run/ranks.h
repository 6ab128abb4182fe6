// Ranks as threads of this process.
#pragma once
#include <functional>

namespace crest {

// Calls work(0) .. work(ranks - 1), each on its own thread (one rank: on the calling thread), and
// waits for all. Then throws the first error by rank; PeerLost only if there is no other error.
void run_on_ranks(int ranks, const std::function<void(int)>& work);

}  // namespace crest
