// Starts the ranks of a run as processes of this host: copies of this program with the same command
// line and torchrun's variables. For measuring collectives and for training.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "comm/secret.h"

namespace crest {

struct LaunchOptions {
  int ranks = 1;
  int port = 0;                             // rank 0's; 0: any free one
  std::function<bool()> stop = {};          // polled; true: end all ranks (Ctrl-C)
  double patience = 5;                      // seconds for ranks to end and record the reason, before they are killed
  double stop_patience = 5;                 // the same after `stop`: training needs time to save
  std::string less_memory = "";             // advice if the system killed a rank: "use smaller --sizes"
  std::vector<std::string> arguments = {};  // of the copies; empty: this process's own
  std::vector<std::pair<std::string, std::string>> variables = {};  // of their environment, over this process's own
  std::function<void(const std::string&)> told = {};                // gets the texts of tell_launcher()
};

// Returns rank 0's exit code after all ranks have ended successfully, or have stopped because of a
// signal. Rank 0 uses this process's standard output, all ranks its standard error. If a rank dies
// or fails, all others are ended, and an Error names the first one: PeerLost for a lost rank (ended
// by a signal, or silent), else its own report. When `stop` returns true, rank 0 gets SIGTERM. The
// ranks end with this process, however it ends.
int launch_ranks(const LaunchOptions& options);

// Runs a rank's work. An error goes to the launcher, which reports one for all, or to the caller if
// another program started the ranks. Returns the exit code.
int run_rank(const std::function<int()>& work);

// Joins the ranks of this process's environment. Rank 0 of launch_ranks() finds its port already
// open. `secret` replaces the secret of the options.
std::unique_ptr<Control> join_ranks(const RankEnvironment& environment, double seconds, RankSecret& secret,
                                    ControlOptions options = {});

// This process's arguments, the program first.
std::vector<std::string> own_arguments();
// Whether launch_ranks() started this process.
bool is_launched();
// In a rank: sends an error to the launcher; false: there is no launcher.
bool report_to_launcher(const std::exception_ptr& error);
// The same for a silent rank. The launcher kills it, so its connections break.
void report_silent_rank(int rank);
// The same for a line of text.
void tell_launcher(const std::string& text);

// Seconds since the start of this process.
double seconds_since_start();

}  // namespace crest
