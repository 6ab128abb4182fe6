#include "host/stop_signal.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "core/error.h"

namespace crest {

namespace {

// The standard allows lock-free atomics in a handler on any thread.
std::atomic<int> received = 0;
std::atomic<int64_t> first_at = INT64_MAX;  // an early reader then sees no long time
std::atomic<int64_t> grace = 0;             // microseconds from the first signal to the end; 0: none
std::atomic<bool> installed = false, watches_output = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t nanoseconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe (signal-safety(7))
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

bool reader_is_gone() {
  for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat file {};
    pollfd p = {fd, 0, 0};
    bool pipe = fstat(fd, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode));
    if (pipe && poll(&p, 1, 0) == 1 && (p.revents & POLLERR)) return true;
  }
  return false;
}

void set_alarm(int64_t microseconds) {
  itimerval timer{};
  timer.it_value.tv_sec = microseconds / 1'000'000, timer.it_value.tv_usec = microseconds % 1'000'000;
  setitimer(ITIMER_REAL, &timer, nullptr);  // a system call alone, so it may be used in a handler
}

void on_alarm(int) {
  static const char text[] = "crest: interrupted, ended within a step\n";
  [[maybe_unused]] ssize_t n = write(2, text, sizeof text - 1);
  _exit(130);
}

void on_signal(int number) {
  int saved = errno;
  int none = 0;
  if (received.compare_exchange_strong(none, number)) {
    first_at = nanoseconds();
    if (grace > 0) set_alarm(grace);
  } else if ((number == SIGINT || number == SIGTERM) &&
             nanoseconds() - first_at > int64_t(1e9 * StopSignal::repetition_seconds)) {
    static const char text[] = "\ncrest: interrupted twice, ended without saving\n";
    [[maybe_unused]] ssize_t n = write(2, text, sizeof text - 1);
    _exit(130);
  }
  errno = saved;
}

}  // namespace

StopSignal::StopSignal(std::optional<double> grace_seconds) {
  if (installed.exchange(true)) fail_internal("a second stop-signal guard");
  received = 0;
  first_at = INT64_MAX;
  grace = int64_t(1e6 * grace_seconds.value_or(0));
  // The handler has its own stack: oneDNN's generated fp32 kernels use the stack pointer for other
  // things, and a signal frame (11 KB with AMX registers) pushed below it would land in the heap.
  // The kernel delivers signals of the process to its main thread unless blocked there (signal(7)),
  // and the main thread creates this guard.
  stack_t stack{};
  stack.ss_sp = stack_.data();
  stack.ss_size = stack_.size();
  sigaltstack(&stack, &old_stack_);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  // The two handlers do not interrupt each other, so the time of the first is set before the second
  // is checked.
  for (int number : numbers) sigaddset(&action.sa_mask, number);
  for (size_t i = 0; i < std::size(numbers); ++i) {
    sigaction(numbers[i], &action, &old_[i]);
    bool kept = (numbers[i] == SIGHUP || numbers[i] == SIGPIPE) && old_[i].sa_handler == SIG_IGN;
    if (kept) sigaction(numbers[i], &old_[i], nullptr);
  }
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, &old_alarm_);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < std::size(numbers); ++i) sigaction(numbers[i], &old_[i], nullptr);
  if (grace > 0) set_alarm(0);
  sigaction(SIGALRM, &old_alarm_, nullptr);
  sigaltstack(&old_stack_, nullptr);
  received = 0;
  installed = false;
}

bool StopSignal::guarded() { return installed.load(); }
void StopSignal::watch_output() {
  if (signal(SIGPIPE, SIG_IGN) != SIG_IGN) watches_output = true;
}

bool StopSignal::requested() { return signal_number() != 0; }
int StopSignal::signal_number() {
  int number = received.load();
  if (number != 0 && grace > 0) set_alarm(0);  // the reader of the flag ends the command
  return number == 0 && installed && watches_output && reader_is_gone() ? SIGPIPE : number;
}
std::string StopSignal::signal_name(int number) {
  const char* name = number ? sigabbrev_np(number) : nullptr;
  return name ? std::string("SIG") + name : "";
}

}  // namespace crest
