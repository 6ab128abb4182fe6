#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "backend/device_json.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/find.h"
#include "host/environment.h"
#include "host/openmp_threads.h"
#include "terminal/print_json.h"

using namespace crest;

// Bare `crest`: the device found and commands to try first.
static void print_welcome(bool json) {
  static constexpr std::pair<const char*, const char*> first[] = {
      {"crest train input.txt", "train a small GPT on your own text file"},
      {"crest plan --model gpt2-124M", "parameters, memory and FLOPs before anything runs"},
      {"crest profile --model nano", "where the time and memory of a training step go"}};
  Device d = find_device("auto", 0);
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (auto& [command, help] : first) list.push_back({{"command", command}, {"help", help}});
    return print_json({{"version", CREST_VERSION}, {"device", device_to_json(d)}, {"try_first", list}});
  }
  fmt::print(
      "Crest {} trains GPT-style transformers and explains every millisecond and byte.\n\nDevice: {} {}, {} free\n\n"
      "Try first:\n",
      CREST_VERSION, d.kind, d.name, format_bytes(double(d.memory)));
  for (auto& [command, help] : first) fmt::print("  {:<32} {}\n", command, help);
  fmt::print("\ncrest --help lists all commands.\n");
}

// Messages quote file names and file contents: their escape sequences must not reach the terminal.
static void print_error(std::string_view text) {
  std::string safe;
  for (auto& line : split(text, '\n')) safe += (safe.empty() ? "" : "\n") + printable(line, line.size());
  // Not fmt::print, which throws when standard error is closed or on a full disk: the exit code
  // must arrive.
  std::fputs(fmt::format("crest: error: {}\n", safe).c_str(), stderr);
}

static int run(int argc, char** argv) {
  bool json = std::count(argv + 1, argv + argc, std::string_view("--json")) == 1;
  if (argc == 1 || (argc == 2 && json)) {
    print_welcome(json);
    return 0;
  }
  if (argc == 3 && argv[1] == std::string_view("--json")) std::swap(argv[1], argv[2]);
  std::string command = argv[1];
  // crest help train is the same as crest train --help.
  if (command == "help" && argc > 2 && argv[2] != std::string("settings")) {
    std::vector<char*> again = {argv[0], argv[2]};
    std::string flag = argc > 3 && argv[3] == std::string("--all") ? "--help-all" : "--help";
    again.push_back(flag.data());
    return run(int(again.size()), again.data());
  }
  if (command == "--help" || command == "-h" || command == "--help-all" || command == "help") {
    fmt::print("{}", argc > 2 && command == "help" ? settings_help() : program_help());
    return 0;
  }
  if (command == "--version" || command == "version") {
    print_versions(json);
    return 0;
  }
  std::vector<std::string> names;
  for (auto& c : commands()) names.push_back(c.name);
  for (auto& c : commands()) {
    if (command != c.name) continue;
    CLI::App app{c.help, fmt::format("crest {}", c.name)};
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.set_help_flag("-h,--help", "print the common options");
    app.set_help_all_flag("--help-all", "print all options");
    auto action = c.setup(app);
    try {
      parse_command_line(app, argc - 2, argv + 2);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", command_help(c, app, false));
      return 0;
    } catch (const CLI::CallForAllHelp&) {
      fmt::print("{}", command_help(c, app, true));
      return 0;
    } catch (const CLI::ParseError& e) {
      std::string problem = e.what();  // "--ab: 1 required FLAGS missing"
      if (size_t at = problem.find(": 1 required "); at != std::string::npos)
        problem = fmt::format("{} needs a value", problem.substr(0, at));
      std::string where = std::string("crest ") + c.name;
      // "Could not convert: --stage = 99999999999": parse_command_line found it to be a number.
      constexpr std::string_view convert = "Could not convert: ", is = " = ";
      if (size_t at = problem.find(is); problem.starts_with(convert) && at != std::string::npos) {
        where = problem.substr(convert.size(), at - convert.size());
        problem = fmt::format("'{}' is out of range", printable(problem.substr(at + is.size())));
      }
      fail_usage(problem, where, fmt::format("See crest {} --help.", c.name));
    }
    return action();
  }
  fail_usage(fmt::format("unknown command '{}'", printable(command)), "",
             did_you_mean(command, names) + " See crest --help.");
}

// OpenMP's idle threads spin for milliseconds by default. On a shared machine a spinning thread can
// keep the thread it waits for from running, and steps take many times longer.
static bool spin_briefly() {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return false;
  setenv("GOMP_SPINCOUNT", "4000", 1);  // about 0.1 ms
  return true;
}

static bool limit_threads() {
  const char* set = std::getenv("OMP_NUM_THREADS");
  if (!set) return false;
  OpenmpThreads checked = checked_openmp_threads(set, usable_threads());
  if (checked.note.empty()) return false;
  to_stderr("crest: note: {}\n", checked.note);
  if (checked.use.empty())
    unsetenv("OMP_NUM_THREADS");
  else
    setenv("OMP_NUM_THREADS", checked.use.c_str(), 1);
  return true;
}

// libgomp reads its settings before main, so the program restarts itself with the right ones. If
// that fails, it still works, only slower.
static void set_openmp(char** argv) {
  bool spins = spin_briefly(), limited = limit_threads();
  if (spins || limited) execv("/proc/self/exe", argv);
}

// Opens closed standard streams, so no file gets the number of one and receives its text. Writes to
// a closed standard output still fail, as they should.
static void open_standard_streams() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // gets the lowest free number
}

// A command ends with its reader (`| head -1`), as interrupted. If SIGPIPE was ignored, the write
// fails instead.
static void end_without_reader() {
  if (std::signal(SIGPIPE, [](int) { _exit(int(Exit::interrupted)); }) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);
}

static void print_lost_output(const char* reason, const std::string& what_is_true) {
  print_error(fmt::format("standard output could not be written: {}\n  {}", reason, what_is_true));
}

// Prints fixed text: formatting a message needs memory.
static int out_of_memory() {
  std::fputs("crest: error: out of memory\n", stderr);
  std::fputs("  Close other programs, or use a smaller --batch or model. crest plan shows how much is needed.\n",
             stderr);
  return int(Exit::does_not_fit);
}

// Library functions with a promise not to throw (CLI11's look-ups, directory iterators) still
// allocate memory, and some end the program without a reason. So the reason is noted here. Ending
// here is like a kill: files on disk stay whole.
static std::atomic<bool> memory_ran_out = false;
static std::terminate_handler terminate_before;
[[noreturn]] static void on_no_memory() {
  memory_ran_out = true;
  throw std::bad_alloc();
}
[[noreturn]] static void on_terminate() {
  bool no_memory = memory_ran_out;
  if (auto error = std::current_exception()) try {
      std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    } catch (...) {  // a bug: handled as before
      no_memory = false;
    }
  if (no_memory) _exit(out_of_memory());
  terminate_before();
  std::abort();
}

// The last part of a command's output is still buffered. The command itself has ended with `code`.
static int flushed(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  print_lost_output(std::strerror(errno),
                    code == 0 ? "The command finished, but its output is lost."
                    : code == int(Exit::interrupted)
                        ? "The command was interrupted, and its output is lost."
                        : fmt::format("The command failed with exit code {}, and its output is lost.", code));
  return code != 0 ? code : int(Exit::failed);
}

int main(int argc, char** argv) {
  open_standard_streams();
  terminate_before = std::set_terminate(on_terminate);
  std::set_new_handler(on_no_memory);
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit (ulimit -f) becomes a write error with its name
  set_openmp(argv);
  end_without_reader();
  try {
    return flushed(run(argc, argv));
  } catch (const Error& e) {
    // A library may have reported the failed allocation as another error: streams report an
    // unreadable number.
    print_error(std::string(e.what()) +
                (memory_ran_out ? "\n  Before this error, the program ran out of memory." : ""));
    return int(e.code());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::filesystem::filesystem_error& e) {
    print_error(Error(Exit::failed, "cannot look at it: " + e.code().message(), printable(e.path1().string()),
                      "Check the path, its owner and its permissions.")
                    .what());
    return int(Exit::failed);
  } catch (const std::system_error& e) {
    if (std::ferror(stdout))  // printing threw, so the command stopped there
      print_lost_output(e.code().message().c_str(),
                        "The command stopped there. Its work up to that point is kept; its output is incomplete.");
    else
      print_error(e.what());
    return int(Exit::failed);
  } catch (const std::exception& e) {
    print_error(e.what());
    return int(Exit::failed);
  }
}
