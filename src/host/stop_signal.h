// Ctrl-C, SIGTERM, a lost terminal (SIGHUP) and a reader that went away (SIGPIPE): the first asks the run to save and
// stop; a second Ctrl-C or SIGTERM ends the process at once.
#pragma once
#include <signal.h>

#include <string>
#include <vector>

namespace crest {

// While one of these lives, the first of these signals sets a flag that the training loop polls, and another SIGINT or
// SIGTERM calls _exit(130) after a short message. SIGHUP and SIGPIPE come as often as they like: every write to a
// closed pipe sends one. Where they were ignored before (nohup), they stay so. A repetition within 50 ms counts as the
// same request: `timeout` and some launchers signal the process and its group, so it arrives twice. The destructor
// restores the handlers that were there before. One at a time in a process; a second one is an internal error.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Whether a guard lives.
  static bool guarded();
  // True once a signal came since the guard was made; safe from any thread, also when no guard lives (then false).
  static bool requested();
  // The signal's number, 0 = none.
  static int signal_number();
  // "SIGINT"; "" when none came.
  static std::string signal_name();

 private:
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  struct sigaction old_[4];
  stack_t old_stack_{};
  std::vector<char> stack_ = std::vector<char>(size_t(1) << 18);
};

}  // namespace crest
