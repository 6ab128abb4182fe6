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
#include "comm/sent_error.h"
#include "core/text.h"
#include "host/cgroup.h"
#include "host/stop_signal.h"

extern char** environ;

namespace crest {

namespace {

// Descriptors inherited from the launcher: for a rank's error report, and rank 0's open port.
constexpr const char* report_variable = "CREST_RANK_REPORT";
constexpr const char* listener_variable = "CREST_RANK_LISTENER";

// A report: 'E' and an error, 'S' and a silent rank, 'J' when all have joined, or 'T' and a text
// for the launcher.
constexpr char record_end = '\x1e';

// Seconds for ranks to end before they have found each other, to report their own errors.
constexpr double start_patience = 0.5;

bool report(char kind, const std::string& text) {
  int fd = inherited_descriptor(report_variable);
  std::string record = kind + text + record_end;
  return fd >= 0 && write(fd, record.data(), record.size()) == ssize_t(record.size());
}

struct Child {
  int rank = 0;
  pid_t pid = -1;
  Socket report;  // read end
  std::optional<int> status;

  bool failed() const { return status && *status != 0; }
  std::string unread;             // of its reports
  std::optional<SentError> said;  // its last error
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
        // Rank 0 first, because broken connections would keep it from recording the run.
        stopped_ = ending_ = true;
        if (!children_[0].status) ::kill(children_[0].pid, StopSignal::signal_number() == SIGINT ? SIGINT : SIGTERM);
        terminate = after(1e9), kill = after(o_.stop_patience);
      }
      if (stopped_ && children_[0].status && !hurried) hurried = true, kill = after(0.2);
      // A hanging rank has nothing to report, and an exiting rank needs no second signal.
      if (only_blamed_runs() && !hurried) hurried = true, kill = after(1);
      // While ranks start, they do not notice that another one died, and have nothing to record.
      const double patience = joined_ ? o_.patience : start_patience;
      if (first_ && !kill) terminate = after(std::max(0.0, patience - 1)), kill = after(patience);
      if (terminate && Clock::now() > *terminate) signal_all(SIGTERM), terminate = after(1e9);
      if (kill && Clock::now() > *kill) signal_all(SIGKILL), kill = after(1e9);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const Child& zero = children_[0];
    bool ended_itself = !zero.said && WIFEXITED(*zero.status);
    if (ended_itself && WEXITSTATUS(*zero.status) == int(Exit::interrupted)) return int(Exit::interrupted);
    if (stopped_ && !(ended_itself && WEXITSTATUS(*zero.status) == 0))
      throw Error(Exit::interrupted, "interrupted; all ranks have ended");
    if (first_) throw_cause();
    return 0;
  }

 private:
  // "NAME=value" for all variables. A rank's own values override this process's.
  std::vector<std::string> variables(int rank, int report) const {
    std::map<std::string, std::string> all;
    for (char** v = environ; *v; ++v)
      if (const char* equals = std::strchr(*v, '=')) all[std::string(*v, size_t(equals - *v))] = equals + 1;
    for (const char* other : {"TORCHELASTIC_USE_AGENT_STORE", listener_variable}) all.erase(other);
    for (auto& [name, value] : o_.variables) all[name] = value;
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
    // All memory is allocated before the fork, since only system calls are safe between fork and
    // exec.
    std::vector<std::string> lines = variables(rank, write_end.fd());
    std::vector<char*> envp, argv;
    for (auto& l : lines) envp.push_back(l.data());
    for (auto& a : arguments_) argv.push_back(a.data());
    envp.push_back(nullptr), argv.push_back(nullptr);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) fail(fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)), "launch");
    if (pid == 0) become(rank, parent, write_end.fd(), argv.data(), envp.data());
    setpgid(pid, group_ ? group_ : pid);  // in parent and child: whichever runs first
    if (!group_) group_ = pid;
    children_.push_back({rank, pid, std::move(read_end), std::nullopt, {}, {}});
  }

  // A separate process group, so Ctrl-C in a terminal reaches only the launcher. It ends all ranks
  // in the same way.
  [[noreturn]] void become(int rank, pid_t parent, int report, char** argv, char** envp) {
    setpgid(0, group_);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    if (rank != 0) dup2(null, 1);
    fcntl(report, F_SETFD, 0);
    fcntl(secret_.fd(), F_SETFD, 0);
    if (rank == 0) fcntl(listener_.fd(), F_SETFD, 0);
    execve("/proc/self/exe", argv, envp);
    _exit(127);
  }

  // Collects ended ranks; false: all have ended.
  bool reap() {
    bool running = false;
    for (auto& c : children_) {
      int status = 0;
      if (!c.status) read_reports(c);
      if (!c.status && waitpid(c.pid, &status, WNOHANG) == c.pid) {
        c.status = status;
        read_reports(c);
        // A failure caused by another rank is not the first failure, even if it ended earlier.
        bool because_of_peer = c.said && c.said->lost;
        if (because_of_peer) blamed_ = *c.said->lost, noticed_ = c.said->where;
        bool interrupted = WIFEXITED(*c.status) && WEXITSTATUS(*c.status) == int(Exit::interrupted) && !c.said;
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
      std::string text = c.unread.substr(0, end);
      char kind = text.empty() ? '\0' : text[0];
      if (kind != '\0') text.erase(0, 1);
      if (kind == 'E') c.said = parse_sent_error(text);
      if (kind == 'S') end_silent(std::atoi(text.c_str()));
      if (kind == 'J') joined_ = true;
      if (kind == 'T' && o_.told) o_.told(text);
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
    if (c.said) {
      const SentError& e = *c.said;
      if (e.lost) throw PeerLost(*e.lost, e.problem, e.where, e.advice);
      bool same = c.rank == 0 || e.code == Exit::usage;  // all ranks share a usage error
      throw Error(e.code, same ? e.problem : fmt::format("rank {}: {}", c.rank, e.problem), e.where, e.advice);
    }
    std::string others = children_.size() > 1 ? "; all other ranks were ended" : "";
    if (!noticed_.empty()) others += fmt::format(" ({})", noticed_);
    if (!WIFSIGNALED(*c.status))
      throw PeerLost(c.rank, fmt::format("rank {} ended with exit code {}{}", c.rank, WEXITSTATUS(*c.status), others),
                     "");
    int number = WTERMSIG(*c.status);
    std::string advice = "If nobody sent it, the system ran out of memory: " + o_.less_memory + ".";
    throw PeerLost(c.rank,
                   fmt::format("rank {} was ended by signal {} ({}){}", c.rank, number, strsignal(number), others), "",
                   number == SIGKILL ? advice : "");
  }

  const LaunchOptions& o_;
  Socket listener_, secret_;
  std::vector<std::string> arguments_;
  std::vector<Child> children_;
  pid_t group_ = 0;
  const Child* first_ = nullptr;  // the first one that failed
  bool peer_first_ = false;       // first_ failed because of a rank not seen to end yet
  int ended_ = -1;                // a silent rank that was killed
  bool joined_ = false;           // all ranks have found each other
  int blamed_ = -1;               // reported by the others
  std::string noticed_;           // where they noticed it
  bool stopped_ = false;
  bool ending_ = false;  // signals were sent, so later ends are not causes
};

}  // namespace

int launch_ranks(const LaunchOptions& options) { return Launch(options).run(); }

std::vector<std::string> own_arguments() {
  std::string text = read_system_file("/proc/self/cmdline");
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return split(text, '\0');
}

bool is_launched() { return inherited_descriptor(report_variable) >= 0; }

bool report_to_launcher(const std::exception_ptr& error) {
  constexpr size_t longest = 1300;  // three reports are shorter than PIPE_BUF, so each is written whole
  return report('E', to_text(sent_error(error, longest)));
}

void report_silent_rank(int rank) { report('S', std::to_string(rank)); }

void tell_launcher(const std::string& text) { report('T', text); }

int run_rank(const std::function<int()>& work) {
  int report = inherited_descriptor(report_variable);
  if (report < 0) return work();
  fcntl(report, F_SETFD, FD_CLOEXEC);
  try {
    return work();
  } catch (const std::exception&) {
    report_to_launcher(std::current_exception());
    return int(sent_error(std::current_exception()).code);
  }
}

std::unique_ptr<Control> join_ranks(const RankEnvironment& environment, double seconds, RankSecret& secret,
                                    ControlOptions options) {
  int listener = environment.rank == 0 ? inherited_descriptor(listener_variable) : -1;
  if (listener >= 0) fcntl(listener, F_SETFD, FD_CLOEXEC);
  for (auto deadline = after(seconds);;) try {
      options.secret = secret.text();
      auto control = Control::join(environment, seconds, Socket(listener), options);
      if (control->rank() == 0) report('J', "");
      return control;
    } catch (const Error& e) {
      if (e.code() != Exit::usage || !secret.wait_for_another(deadline)) throw;
    }
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
