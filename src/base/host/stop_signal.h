// Ctrl-C, SIGTERM, a lost terminal (SIGHUP) and a lost reader (SIGPIPE). The first one asks the run
// to save and stop; a second Ctrl-C or SIGTERM ends the process at once.
#pragma once
#include <signal.h>

#include <optional>
#include <string>
#include <vector>

namespace crest {

// While this object lives, the first of these signals sets a flag, polled by the training loop, and
// another SIGINT or SIGTERM calls _exit(130) after a short message. SIGHUP and SIGPIPE may repeat:
// every write to a closed pipe sends one. Signals ignored before (nohup) stay ignored. A repetition
// within `repetition_seconds` is the same request: `timeout` and some launchers signal both the
// process and its group. The destructor restores the previous handlers. Only one may exist in a
// process; a second one is an internal error.
class StopSignal {
 public:
  static constexpr double repetition_seconds = 0.05;

  // For a command without a stop inside its steps: the process ends with status 130 if nothing has
  // asked requested() within `grace_seconds` after the first signal.
  static constexpr double measuring_grace = 0.9;
  explicit StopSignal(std::optional<double> grace_seconds = std::nullopt);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // For a process with sockets, where a broken one is an error to report and no signal: SIGPIPE is
  // ignored from now on. Instead, a pipe at standard output or error without a reader is treated as
  // SIGPIPE, unless this was ignored before.
  static void watch_output();

  // Whether such an object exists.
  static bool guarded();
  // True once a signal has come since the object was created. Safe in any thread, and without such
  // an object (then false).
  static bool requested();
  // The signal's number, 0 = none.
  static int signal_number();
  // "SIGINT"; "" for 0.
  static std::string signal_name(int number);

 private:
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  struct sigaction old_[4], old_alarm_;
  stack_t old_stack_{};
  std::vector<char> stack_ = std::vector<char>(size_t(1) << 18);
};

}  // namespace crest
