// Ctrl-C and SIGTERM: the first asks the run to save and stop, the second ends the process at once.
#pragma once
#include <signal.h>

#include <vector>

namespace crest {

// While one of these lives, the first SIGINT or SIGTERM sets a flag that the training loop polls, and the second calls
// _exit(130) after a short message. A repetition within 50 ms counts as the same request: `timeout` and some launchers
// signal the process and its group, so it arrives twice. The destructor restores the handlers that were there before.
// One at a time in a process; a second one is an internal error.
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

 private:
  struct sigaction old_int_, old_term_;
  stack_t old_stack_{};
  std::vector<char> stack_ = std::vector<char>(size_t(1) << 18);
};

}  // namespace crest
