// Runs the real binary with arguments in a temporary folder: shared by the tests of the command
// line.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/timer.h"
#include "crest_binary.h"
#include "device/find.h"
#include "device/matmul_rates.h"
#include "memory_folder.h"
#include "wait.h"

namespace crest::test {

// --steps of a run to be ended by a signal: no machine takes so many before the signal comes.
inline constexpr const char* endless = "1000000000";

class TempFolder : public MemoryFolder {
 public:
  std::filesystem::path path() const { return MemoryFolder::path(); }
  // Writes a file (and the folders above it); returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::path p = path() / name;
    std::filesystem::create_directories(p.parent_path());
    std::ofstream(p, std::ios::binary) << content;
    return p.string();
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

// A process started by run_crest and not collected yet, so its number is nobody else's.
class RunningProcess {
 public:
  RunningProcess(pid_t pid, std::string err) : pid_(pid), err_(std::move(err)) {}
  operator pid_t() const { return pid_; }

  // Its standard error so far.
  std::string err() const {
    std::ifstream in(err_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool ended() const {
    siginfo_t info{};
    return waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
  }
  // User and system time of all of its threads.
  double cpu_seconds() const {
    clockid_t clock;
    timespec t{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  }
  // Until happened(). False, and a failure of the test, when the process ends before, or it takes
  // too long.
  template <class Happened>
  bool wait(const std::string& event, Happened happened) const {
    bool seen = false, over = false;
    wait_until([&] { return over = ended(), (seen = happened()) || over; });
    if (!seen)
      ADD_FAILURE() << (over ? "the process ended before: " : "waited in vain for: ") << event << "\n" << err();
    return seen;
  }
  bool wait_for_text(const std::string& text) const {
    return wait("'" + text + "' on standard error", [&] { return err().find(text) != std::string::npos; });
  }
  // Stops it between two instructions until resume(): whatever the test does meanwhile takes the
  // process no time.
  bool stop() const {
    kill(pid_, SIGSTOP);
    return wait("stop", [&] {
      siginfo_t info{};
      return waitid(P_PID, id_t(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
    });
  }
  void resume() const { kill(pid_, SIGCONT); }

 private:
  pid_t pid_;
  std::string err_;
};

// Variables of the tests' environment with an effect on Crest. (CREST_ISA and OMP_* stay: with them
// the whole suite runs on other processors and threads.)
inline constexpr const char* callers_variables[] = {"RANK",
                                                    "LOCAL_RANK",
                                                    "WORLD_SIZE",
                                                    "LOCAL_WORLD_SIZE",
                                                    "MASTER_ADDR",
                                                    "MASTER_PORT",
                                                    "OMPI_COMM_WORLD_RANK",
                                                    "OMPI_COMM_WORLD_SIZE",
                                                    "PMI_RANK",
                                                    "PMI_SIZE",
                                                    "SLURM_PROCID",
                                                    "SLURM_NTASKS",
                                                    "SLURM_STEP_ID",
                                                    "SLURM_LOCALID",
                                                    "SLURM_NTASKS_PER_NODE",
                                                    "COLUMNS",
                                                    "NO_COLOR",
                                                    "TORCHELASTIC_USE_AGENT_STORE",
                                                    "SLURM_NODEID",
                                                    "SLURM_STEP_TASKS_PER_NODE",
                                                    "SLURM_STEP_NODELIST",
                                                    "CREST_SECRET",
                                                    "CREST_SECRET_FILE",
                                                    "CREST_LIBRARIES"};

struct RunOptions {
  std::string folder = {};                                            // working folder; empty: a temporary one
  std::vector<std::string> launcher = {};                             // a program to start crest, with its arguments
  std::string input = {};                                             // standard input
  std::vector<std::pair<std::string, std::string>> environment = {};  // over this process' own
  std::string output = {};                                            // a file or device instead of `out` of the result
  bool closed_error = false;                                          // standard error is closed
  int64_t largest_file = -1;                                          // in bytes (ulimit -f)
  double timeout_seconds = 300;  // after while_running; then the process is killed and the test fails
  std::function<void(const RunningProcess&)> while_running = {};  // called once after the start (to send signals)
};

struct RunResult {
  int code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
  double seconds = 0;
  double cpu_seconds = 0;  // user and system time: `seconds` for one thread on an idle machine
  // Standard output as one JSON document; a failure of the test when it is none.
  nlohmann::json json() const {
    auto document = nlohmann::json::parse(out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << "no JSON on standard output:\n" << out << "\n--- standard error:\n" << err;
    return document;
  }
};

// --precision auto chooses bf16 on every CPU with it, whatever a measurement would say.
inline void keep_rates(const RunOptions& options, const std::string& folder) {
  if (best_isa() < Isa::avx512_bf16) return;
  std::string cache = folder + "/cache";
  for (auto& [name, value] : options.environment)
    if (name == "CREST_CACHE") cache = value;
  std::error_code error;
  std::filesystem::create_directories(cache, error);
  if (std::filesystem::exists(cache + "/matmul-rates.json", error)) return;
  nlohmann::json rates;
  for (Isa isa : {Isa::avx512_bf16, Isa::amx})
    rates[matmul_rates_key(cpu_device(isa, 1))] = {{"fp32", 1e11}, {"bf16", 2e11}};
  std::ofstream(cache + "/matmul-rates.json") << nlohmann::json{{"format", 1}, {"rates", rates}};
}

// Output goes to files, so no pipe fills up.
inline RunResult run_crest(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  TempFolder own;
  std::string folder = options.folder.empty() ? own.path().string() : options.folder;
  keep_rates(options, folder);
  TempFolder streams;
  std::string input = streams.write("in", options.input);
  std::vector<char*> argv;
  for (auto& a : options.launcher) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(const_cast<char*>(crest_binary()));
  for (auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::string out = options.output.empty() ? streams / "out" : options.output, err = streams / "err";
  Timer timer;
  pid_t pid = fork();
  if (pid == 0) {
    auto redirect = [](const std::string& path, int flags, int to) {
      int fd = open(path.c_str(), flags, 0600);
      if (fd < 0 || dup2(fd, to) < 0) _exit(126);
    };
    redirect(input, O_RDONLY, 0);
    redirect(out, O_WRONLY | O_CREAT, 1);
    redirect(err, O_WRONLY | O_CREAT, 2);
    if (options.closed_error) close(2);
    rlimit largest{rlim_t(options.largest_file), rlim_t(options.largest_file)};
    if (options.largest_file >= 0) setrlimit(RLIMIT_FSIZE, &largest);
    // The defaults, whatever the caller's environment: a run under srun, with a store and a cache
    // of its own, or with an unwritable home.
    for (const char* name : callers_variables) unsetenv(name);
    setenv("CREST_STORE", (folder + "/crest.db").c_str(), 1);
    setenv("CREST_CACHE", (folder + "/cache").c_str(), 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);  // these tests are of the command line and the CPU, also where a GPU is
    for (auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (chdir(folder.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  RunResult result;
  if (options.while_running) options.while_running(RunningProcess(pid, err));
  Timer waiting;
  int status = 0;
  bool killed = false;
  rusage usage{};
  while (wait4(pid, &status, WNOHANG, &usage) == 0) {
    if (!killed && waiting.seconds() > options.timeout_seconds) {
      ADD_FAILURE() << "no end within " << options.timeout_seconds << " s: " << (arguments.empty() ? "" : arguments[0]);
      kill(pid, SIGKILL);
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = timer.seconds();
  result.cpu_seconds = double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  result.out = streams.read("out");
  result.err = streams.read("err");
  return result;
}

// One case of bad input: the exit code, and the required parts of the one error message.
inline void expect_error(const std::vector<std::string>& arguments, int code, const std::vector<std::string>& said,
                         const RunOptions& options = {}) {
  RunResult r = run_crest(arguments, options);
  std::string line;
  for (auto& a : arguments) line += a + " ";
  EXPECT_EQ(r.code, code) << line << "\n" << r.out << r.err;
  EXPECT_NE(r.err.find("crest: error: "), std::string::npos) << line << "\n" << r.err;
  EXPECT_EQ(r.err.find("crest: error: "), r.err.rfind("crest: error: ")) << "more than one error\n" << r.err;
  for (auto& text : said)
    EXPECT_NE(r.err.find(text), std::string::npos) << line << ": no '" << text << "' in\n" << r.err;
}

// Models of milliseconds: two layers, two heads, width 32, context 32, vocabulary 101.
inline const char* tiny_model =
    "preset = \"nano\"\nlayers = 2\nheads = 2\nkv_heads = 2\nwidth = 32\nhead_dim = 16\nff = 128\ncontext = 32\n"
    "vocab = 101\n";

}  // namespace crest::test
