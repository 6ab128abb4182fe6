#include "comm/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "comm/secret.h"
#include "core/text.h"
#include "host/cgroup.h"

extern char** environ;

namespace crest {

namespace {

// Descriptors inherited from the launcher: for a rank's error report, and for rank 0's open port.
constexpr const char* report_variable = "CREST_RANK_REPORT";
constexpr const char* listener_variable = "CREST_RANK_LISTENER";

// The descriptor in a variable; -1: not set, or not open in this process.
int handed_down(const char* variable) {
  const char* text = std::getenv(variable);
  int fd = text ? std::atoi(text) : -1;
  return fd > 2 && fcntl(fd, F_GETFD) >= 0 ? fd : -1;
}

constexpr char record_end = '\x1e';

// An error on its way from a rank to the launcher: exit code, the rank that caused it (or "own"),
// problem, where, advice.
std::string pack(const Error& e) {
  auto lost = dynamic_cast<const PeerLost*>(&e);
  return join({std::to_string(int(e.code())), lost ? std::to_string(lost->rank()) : "own", e.problem(), e.where(),
               e.advice()},
              std::string(1, '\0')) +
         record_end;
}

struct Child {
  int rank = 0;
  pid_t pid = -1;
  Socket report;  // read end
  std::optional<int> status;

  bool failed() const { return status && *status != 0; }
  std::string unread;             // of its reports
  std::vector<std::string> said;  // its last report, five strings; else empty
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& o)
      : o_(o), listener_(listen_on("127.0.0.1", o.port)), secret_(make_inherited_secret()) {
    arguments_ = o.arguments.empty() ? own_arguments() : o.arguments;
  }
  ~Launch() {
    signal_all(SIGKILL);
    for (auto& c : children_)
      while (!c.status && waitpid(c.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
  }

  int run() {
    for (int r = 0; r < o_.ranks; ++r) start(r);
    listener_.close(), secret_.close();
    std::optional<Clock::time_point> terminate, kill;
    bool hurried = false;
    while (reap()) {
      if (o_.stop && o_.stop() && !stopped_) {
        // Rank 0 first: it records the run, and broken connections would keep it from that.
        stopped_ = ending_ = true;
        if (!children_[0].status) ::kill(children_[0].pid, SIGTERM);
        terminate = after(1e9), kill = after(o_.stop_patience);
      }
      if (stopped_ && children_[0].status && !hurried) hurried = true, kill = after(0.2);
      // A hanging rank has nothing to report, and one that is already exiting does not need a
      // second signal.
      if (only_blamed_runs() && !hurried) hurried = true, kill = after(1);
      if (first_ && !kill) terminate = after(o_.patience), kill = after(o_.patience + 1);
      if (terminate && Clock::now() > *terminate) signal_all(SIGTERM), terminate = after(1e9);
      if (kill && Clock::now() > *kill) signal_all(SIGKILL), kill = after(1e9);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const Child& zero = children_[0];
    bool ended_itself = zero.said.empty() && WIFEXITED(*zero.status);
    if (ended_itself && WEXITSTATUS(*zero.status) == int(Exit::interrupted)) return int(Exit::interrupted);
    if (stopped_ && !(ended_itself && WEXITSTATUS(*zero.status) == 0))
      throw Error(Exit::interrupted, "interrupted; all ranks have ended");
    if (first_) throw_cause();
    return 0;
  }

 private:
  static std::vector<std::string> own_arguments() {
    std::string text = read_system_file("/proc/self/cmdline");
    if (!text.empty() && text.back() == '\0') text.pop_back();
    return split(text, '\0');
  }

  // "NAME=value" for all variables; those of a rank override this process's own.
  std::vector<std::string> variables(int rank, int report) const {
    std::map<std::string, std::string> all;
    for (char** v = environ; *v; ++v)
      if (const char* equals = std::strchr(*v, '=')) all[std::string(*v, size_t(equals - *v))] = equals + 1;
    for (const char* other : {"TORCHELASTIC_USE_AGENT_STORE", listener_variable}) all.erase(other);
    all[secret_descriptor_variable] = std::to_string(secret_.fd());
    std::string n = std::to_string(o_.ranks), r = std::to_string(rank);
    all["RANK"] = all["LOCAL_RANK"] = r;
    all["WORLD_SIZE"] = all["LOCAL_WORLD_SIZE"] = n;
    all["MASTER_ADDR"] = "127.0.0.1";
    all["MASTER_PORT"] = std::to_string(port_of(listener_));
    all[report_variable] = std::to_string(report);
    if (rank == 0) all[listener_variable] = std::to_string(listener_.fd());
    std::vector<std::string> lines;
    for (auto& [name, value] : all) lines.push_back(name + "=" + value);
    return lines;
  }

  void start(int rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail(fmt::format("no pipe for rank {}: {}", rank, std::strerror(errno)), "launch");
    Socket read_end(ends[0]), write_end(ends[1]);
    fcntl(read_end.fd(), F_SETFL, O_NONBLOCK);
    // All memory is allocated before the fork: between it and exec, only system calls are safe.
    std::vector<std::string> lines = variables(rank, write_end.fd());
    std::vector<char*> envp, argv;
    for (auto& l : lines) envp.push_back(l.data());
    for (auto& a : arguments_) argv.push_back(a.data());
    envp.push_back(nullptr), argv.push_back(nullptr);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) fail(fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)), "launch");
    if (pid == 0) become(rank, parent, write_end.fd(), argv.data(), envp.data());
    setpgid(pid, group_ ? group_ : pid);  // both here and in the child: whichever runs first
    if (!group_) group_ = pid;
    children_.push_back({rank, pid, std::move(read_end), std::nullopt, {}, {}});
  }

  // A separate process group, so that Ctrl-C in a terminal reaches only the launcher, which ends
  // all ranks in the same way.
  [[noreturn]] void become(int rank, pid_t parent, int report, char** argv, char** envp) {
    setpgid(0, group_);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (int number : {SIGINT, SIGTERM, SIGPIPE}) signal(number, SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    if (rank != 0) dup2(null, 1);
    fcntl(report, F_SETFD, 0);
    fcntl(secret_.fd(), F_SETFD, 0);
    if (rank == 0) fcntl(listener_.fd(), F_SETFD, 0);
    execve("/proc/self/exe", argv, envp);
    _exit(127);
  }

  // Collects ranks that ended; false: all have.
  bool reap() {
    bool running = false;
    for (auto& c : children_) {
      int status = 0;
      if (!c.status) read_reports(c);
      if (!c.status && waitpid(c.pid, &status, WNOHANG) == c.pid) {
        c.status = status;
        read_reports(c);
        // A rank that failed because of another is not the first, even if it ended earlier.
        bool because_of_peer = !c.said.empty() && c.said[1] != "own";
        if (because_of_peer) blamed_ = std::atoi(c.said[1].c_str()), noticed_ = c.said[3];
        bool interrupted = WIFEXITED(*c.status) && WEXITSTATUS(*c.status) == int(Exit::interrupted) && c.said.empty();
        if (c.failed() && !interrupted && !ending_ && c.rank != ended_ &&
            (!first_ || (peer_first_ && !because_of_peer)))
          first_ = &c, peer_first_ = because_of_peer;
      }
      running |= !c.status;
    }
    return running;
  }

  void read_reports(Child& c) {
    char chunk[4096];
    for (ssize_t n; (n = read(c.report.fd(), chunk, sizeof chunk)) > 0;) c.unread.append(chunk, size_t(n));
    for (size_t end; (end = c.unread.find(record_end)) != std::string::npos; c.unread.erase(0, end + 1)) {
      auto parts = split(c.unread.substr(0, end), '\0');
      if (parts.size() == 5) c.said = parts;
      if (parts.size() == 1) end_silent(std::atoi(parts[0].c_str()));
    }
  }

  void end_silent(int rank) {
    for (auto& c : children_)
      if (c.rank == rank && !c.status && ended_ < 0) ended_ = rank, ::kill(c.pid, SIGKILL);
  }

  bool only_blamed_runs() const {
    return blamed_ >= 0 && std::all_of(children_.begin(), children_.end(),
                                       [&](auto& c) { return (c.rank == blamed_) == !c.status.has_value(); });
  }

  void signal_all(int number) {
    ending_ = true;
    for (auto& c : children_)
      if (!c.status) ::kill(c.pid, number);
  }

  [[noreturn]] void throw_cause() const {
    const Child& c = *first_;
    bool usage = !c.said.empty() && c.said[0] == std::to_string(int(Exit::usage));  // all ranks have the same
    if (!c.said.empty())
      throw Error(Exit(std::atoi(c.said[0].c_str())),
                  peer_first_ || c.rank == 0 || usage ? c.said[2] : fmt::format("rank {}: {}", c.rank, c.said[2]),
                  c.said[3], c.said[4]);
    std::string others = "all other ranks were ended";
    if (!noticed_.empty()) others += fmt::format(" ({})", noticed_);
    if (!WIFSIGNALED(*c.status))
      fail(fmt::format("rank {} ended with exit code {}; {}", c.rank, WEXITSTATUS(*c.status), others));
    int number = WTERMSIG(*c.status);
    std::string advice = "If nobody sent it, the system ran out of memory: " + o_.less_memory + ".";
    fail(fmt::format("rank {} was ended by signal {} ({}); {}", c.rank, number, strsignal(number), others), "",
         number == SIGKILL ? advice : "");
  }

  const LaunchOptions& o_;
  Socket listener_, secret_;
  std::vector<std::string> arguments_;
  std::vector<Child> children_;
  pid_t group_ = 0;
  const Child* first_ = nullptr;  // the first one that failed
  bool peer_first_ = false;       // it failed because of another rank, whose end was not seen yet
  int ended_ = -1;                // a silent rank that was killed
  int blamed_ = -1;               // the rank that others reported
  std::string noticed_;           // where they noticed it
  bool stopped_ = false;
  bool ending_ = false;  // signals were sent: later ends are not causes
};

}  // namespace

int launch_ranks(const LaunchOptions& options) { return Launch(options).run(); }

bool report_to_launcher(const Error& e) {
  int report = handed_down(report_variable);
  if (report < 0) return false;
  constexpr size_t longest = 1300;  // three of them are less than PIPE_BUF: written whole
  auto cut = [](const std::string& text) { return text.substr(0, longest); };
  auto lost = dynamic_cast<const PeerLost*>(&e);
  std::string text = lost ? pack(PeerLost(lost->rank(), cut(e.problem()), cut(e.where()), cut(e.advice())))
                          : pack(Error(e.code(), cut(e.problem()), cut(e.where()), cut(e.advice())));
  return write(report, text.data(), text.size()) == ssize_t(text.size());
}

void report_silent_rank(int rank) {
  std::string text = std::to_string(rank) + record_end;
  if (int report = handed_down(report_variable); report >= 0) (void)!write(report, text.data(), text.size());
}

int run_rank(const std::function<int()>& work) {
  int report = handed_down(report_variable);
  if (report < 0) return work();
  fcntl(report, F_SETFD, FD_CLOEXEC);
  auto send = [&](const Error& e) {
    report_to_launcher(e);
    return int(e.code());
  };
  try {
    return work();
  } catch (const Error& e) {
    return send(e);
  } catch (const std::bad_alloc&) {
    return send(Error(Exit::does_not_fit, "out of memory"));
  } catch (const std::exception& e) {
    return send(Error(Exit::failed, e.what()));
  }
}

std::unique_ptr<Control> join_ranks(const RankEnvironment& environment, double seconds, const ControlOptions& options) {
  int listener = environment.rank == 0 ? handed_down(listener_variable) : -1;
  if (listener >= 0) fcntl(listener, F_SETFD, FD_CLOEXEC);
  return Control::join(environment, seconds, Socket(listener), options);
}

double seconds_since_start() {
  std::string text = read_system_file("/proc/self/stat");
  size_t end = text.rfind(')');  // the name before it may contain blanks
  if (end == std::string::npos) return 0;
  auto fields = split(std::string_view(text).substr(end + 2), ' ');
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  if (fields.size() < 20) return 0;
  double started = std::atof(fields[19].c_str()) / double(sysconf(_SC_CLK_TCK));  // field 22: since boot
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec) - started;
}

}  // namespace crest
