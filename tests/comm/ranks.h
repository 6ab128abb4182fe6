// Ranks as threads that find each other over a real control channel.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "wait.h"

namespace crest::test {

// Calls work(control) on a thread for each of `ranks` ranks; the messages of the errors, by rank
// ("": none).
std::vector<std::string> with_ranks(int ranks, const std::function<void(Control&)>& work,
                                    double seconds = longest_wait);

}  // namespace crest::test
