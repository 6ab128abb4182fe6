// Ranks as threads, joined over a real control channel.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "core/error.h"
#include "wait.h"

namespace crest::test {

inline void expect_says(const std::string& error, const std::string& text) {
  EXPECT_NE(error.find(text), std::string::npos) << "no '" << text << "' in: " << error;
}

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline RankEnvironment environment(int rank, int size, int port) {
  RankEnvironment e;
  e.rank = rank, e.size = size, e.port = port;
  return e;
}

// Calls work(control) on a thread for each of `ranks` ranks; the messages of the errors, by rank
// ("": none).
std::vector<std::string> with_ranks(int ranks, const std::function<void(Control&)>& work,
                                    double seconds = longest_wait);

// The same with a watchdog for each rank. lost: called in its thread, when it has heard of a lost
// rank or of a hanging run. hang, hang_at_work: of ControlOptions.
using OnLostRank = std::function<void(int rank, const PeerLost& lost)>;
std::vector<std::string> with_watched_ranks(int ranks, double hang, double hang_at_work,
                                            const std::function<void(Control&)>& work, const OnLostRank& lost);

}  // namespace crest::test
