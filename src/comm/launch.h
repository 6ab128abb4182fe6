// Starts the ranks of a run as processes of this host: copies of this program with the same command line, and the
// variables that torchrun sets. The same for measuring collectives and for training.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/control.h"

namespace crest {

struct LaunchOptions {
  int ranks = 1;
  int port = 0;                             // rank 0's; 0: any free one
  std::function<bool()> stop = {};          // asked often; true: end all ranks (Ctrl-C)
  double patience = 2;                      // seconds that the others have to end once a rank has failed
  std::vector<std::string> arguments = {};  // of the copies; empty: this process' own
};

// Returns when all ranks have ended well. Rank 0 has this process' standard output, all its standard error. When a rank
// dies, fails, or `stop` says so, all others are ended; throws an Error that names the rank that was first. The ranks
// end with this process, however it ends.
void launch_ranks(const LaunchOptions& options);

// What a rank does between its start and its end: an error goes to the launcher, which reports one for all, or, where
// another program started the ranks, to the caller. Returns the exit code.
int run_rank(const std::function<int()>& work);

// Joins the ranks of this process' environment; rank 0 of launch_ranks() finds its port open already.
std::unique_ptr<Control> join_ranks(const RankEnvironment& environment, double seconds);

// Seconds since this process was started.
double seconds_since_start();

}  // namespace crest
