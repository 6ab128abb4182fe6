// Runs crest and lets one of its system calls fail: every kind of call named by a test is counted
// from the beginning of main() on. The process is traced (ptrace), so this is the real binary, with
// all of its libraries.
#pragma once
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <set>

#include "cli/train_harness.h"

#ifndef SYS_open
#define SYS_open SYS_openat  // aarch64 has no other
#endif

namespace crest::test {

// A system call as it begins.
struct SystemCall {
  long number;
  uint64_t argument[6];
};

struct SystemFault {
  std::function<bool(const SystemCall&)> counts;  // the kinds of calls; the k-th fails
  int64_t k = -1;                                 // from 0; below: none
  int error = EIO;
  bool from_then_on = false;
};

struct FaultyRun : RunResult {
  int64_t calls = 0;  // counted ones
  bool hit = false;
};

// Why processes cannot be traced here; empty: they can.
inline const std::string& tracing_problem() {
  static const std::string problem = [] {
#ifndef __x86_64__
    return std::string("knows the system calls of x86-64 only");
#endif
    pid_t pid = fork();
    if (pid == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    __ptrace_syscall_info info{};
    bool good =
        WIFSTOPPED(status) && ptrace(PTRACE_GET_SYSCALL_INFO, pid, reinterpret_cast<void*>(sizeof info), &info) > 0;
    kill(pid, SIGKILL);
    if (!WIFEXITED(status)) waitpid(pid, &status, 0);
    return std::string(good ? "" : "processes cannot be traced here (ptrace)");
  }();
  return problem;
}

class TracedRun {
 public:
  TracedRun(pid_t pid, const SystemFault& fault) : pid_(pid), fault_(fault) {}

  // The wait status of the process' end.
  int run(FaultyRun& result) {
    int status = 0;
    waitpid(pid_, &status, 0);  // stopped by itself, before exec
    ptrace(
        PTRACE_SETOPTIONS, pid_, nullptr,
        reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC));
    resume(pid_, 0);
    for (;;) {
      pid_t thread = waitpid(-1, &status, __WALL);
      if (thread < 0 && errno == EINTR) continue;
      if (thread < 0) return -1;
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (thread != pid_) continue;
        result.calls = calls_, result.hit = hit_;
        return status;
      }
      int signal = WSTOPSIG(status);
      if (signal == (SIGTRAP | 0x80))
        stop(thread), resume(thread, 0);
      else if (signal == SIGTRAP || (signal == SIGSTOP && known_.insert(thread).second && thread != pid_))
        resume(thread, 0);  // an event of ptrace, or a new thread
      else
        resume(thread, signal);
    }
  }

 private:
  static void resume(pid_t thread, int signal) {
    ptrace(PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(uintptr_t(signal)));
  }

  void stop(pid_t thread) {
    __ptrace_syscall_info info{};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, reinterpret_cast<void*>(sizeof info), &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && failing_.erase(thread)) set_result(thread, -fault_.error);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    SystemCall call{long(info.entry.nr), {}};
    std::copy(std::begin(info.entry.args), std::end(info.entry.args), call.argument);
    // main() first looks at standard input.
    if (call.number == SYS_fcntl && call.argument[0] == 0 && call.argument[1] == F_GETFD) in_main_ = true;
    if (!in_main_ || !fault_.counts(call)) return;
    int64_t number = calls_++;
    if (fault_.k < 0 || (fault_.from_then_on ? number < fault_.k : number != fault_.k)) return;
    hit_ = true;
    failing_.insert(thread);
    set_call(thread, -1);  // no such call, so nothing happens
  }

#ifdef __x86_64__
  template <class Change>
  static void change_registers(pid_t thread, Change change) {
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, thread, nullptr, &registers);
    change(registers);
    ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
  }
  static void set_call(pid_t thread, long number) {
    change_registers(thread, [&](auto& r) { r.orig_rax = uint64_t(number); });
  }
  static void set_result(pid_t thread, long value) {
    change_registers(thread, [&](auto& r) { r.rax = uint64_t(value); });
  }
#else  // tracing_problem() says so
  static void set_call(pid_t, long) {}
  static void set_result(pid_t, long) {}
#endif

  pid_t pid_;
  const SystemFault& fault_;
  std::set<pid_t> known_, failing_;
  int64_t calls_ = 0;
  bool in_main_ = false, hit_ = false;
};

inline FaultyRun run_with_fault(const std::vector<std::string>& arguments, const SystemFault& fault,
                                const RunOptions& options) {
  TempFolder streams;
  std::vector<char*> argv = {const_cast<char*>(crest_binary())};
  for (auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::string out = streams / "out", err = streams / "err";
  pid_t pid = fork();
  if (pid == 0) {
    int null = open("/dev/null", O_RDONLY);
    int to_out = open(out.c_str(), O_WRONLY | O_CREAT, 0600), to_err = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (dup2(null, 0) < 0 || dup2(to_out, 1) < 0 || dup2(to_err, 2) < 0) _exit(126);
    for (int fd : {null, to_out, to_err}) close(fd);
    for (const char* name : callers_variables) unsetenv(name);
    setenv("CREST_STORE", (options.folder + "/crest.db").c_str(), 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("GOMP_SPINCOUNT", "4000", 1);  // else it would start itself once more
    for (auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (chdir(options.folder.c_str()) != 0) _exit(126);
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    execv(crest_binary(), argv.data());
    _exit(127);
  }
  std::atomic<bool> over = false;
  std::thread watch([&] {  // a failing call must not make it wait without an end
    if (!wait_until([&] { return over.load(); }, options.timeout_seconds)) kill(pid, SIGKILL);
  });
  FaultyRun result;
  int status = TracedRun(pid, fault).run(result);
  over = true;
  watch.join();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = streams.read("out"), result.err = streams.read("err");
  return result;
}

}  // namespace crest::test
