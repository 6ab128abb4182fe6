#include "host/external.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"

extern char** environ;

namespace crest {

namespace {

using json = nlohmann::json;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
      fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)), "external command");
    read = fds[0], write = fds[1];
  }
  ~Pipe() { close_read(), close_write(); }
  void close_read() {
    if (read >= 0) close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) close(std::exchange(write, -1));
  }
};

// Reads the available bytes; false at the end of the stream. Only the last `keep` bytes are kept.
bool drain(int fd, std::string& text, size_t keep) {
  char buffer[65536];
  ssize_t n = read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  text.append(buffer, size_t(n));
  if (text.size() > 2 * keep) text.erase(0, text.size() - keep);
  return true;
}

// "NAME=value" for all variables; the given ones override this process's own.
std::vector<std::string> environment_with(const std::vector<Variable>& variables) {
  std::map<std::string, std::string> all;
  for (char** v = environ; *v; ++v)
    if (const char* equals = std::strchr(*v, '=')) all[std::string(*v, size_t(equals - *v))] = equals + 1;
  for (auto& [name, value] : variables) all[name] = value;
  std::vector<std::string> lines;
  for (auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& t : texts) list.push_back(t.data());
  list.push_back(nullptr);
  return list;
}

pid_t spawn(const std::string& file, std::vector<std::string> arguments, const std::vector<Variable>& variables,
            const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> lines = environment_with(variables);
  pid_t pid = -1;
  int rc = posix_spawn(&pid, file.c_str(), &actions, &attributes, pointers(arguments).data(), pointers(lines).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (rc != 0) fail(fmt::format("cannot start {}: {}", printable(file), std::strerror(rc)), arguments.back());
  return pid;
}

}  // namespace

std::string last_lines(const std::string& text, size_t lines) {
  size_t end = text.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "";
  size_t start = end;
  for (size_t seen = 0; start > 0; --start)
    if (text[start - 1] == '\n' && ++seen == lines) break;
  std::string result;
  for (auto& line : split(std::string_view(text).substr(start, end + 1 - start), '\n'))
    result += "\n    " + printable(line, 300);
  return result;
}

namespace {

// The parser is recursive, and a peer may print anything.
bool shallow(std::string_view text) {
  int depth = 0;
  for (char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 64) return false;
  }
  return true;
}

std::optional<ExternalResult> time_of(const json& object) {
  if (!object.is_object()) return {};
  for (const char* key : {"step_ms_median", "ms"}) {
    auto it = object.find(key);
    if (it == object.end() || !it->is_number()) continue;
    double value = it->get<double>();
    if (!std::isfinite(value) || value <= 0) continue;
    return ExternalResult{value, key, object.dump(-1, ' ', false, json::error_handler_t::replace), 0};
  }
  return {};
}

std::optional<ExternalResult> find_time(std::string_view text) {
  size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[') || !shallow(text)) return {};
  json document = json::parse(text, nullptr, false);
  if (!document.is_array()) return time_of(document);
  std::optional<ExternalResult> last;
  for (auto& row : document) {
    auto found = time_of(row);
    if (!found) continue;
    auto phase = row.find("phase");
    if (phase != row.end() && phase->is_string() && phase->get<std::string>() == "step") return found;
    last = std::move(found);
  }
  return last;
}

}  // namespace

CommandOutput run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const std::vector<Variable>& variables, const ExternalOptions& options) {
  CommandOutput result;
  Timer timer;
  Pipe out, err;
  pid_t pid = spawn(file, arguments, variables, out, err);
  out.close_write(), err.close_write();
  int status = 0;
  bool exited = false, killed = false;
  double grace_end = INFINITY;
  // The end of the shell decides, not the end of the pipes: a child in the background may hold them
  // open.
  while (!exited || ((out.read >= 0 || err.read >= 0) && timer.seconds() < grace_end)) {
    pollfd fds[] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    poll(fds, 2, exited ? 10 : 20);
    if (fds[0].revents && !drain(out.read, result.out, options.kept_output)) out.close_read();
    if (fds[1].revents && !drain(err.read, result.err, 64 << 10)) err.close_read();
    if (!exited && waitpid(pid, &status, WNOHANG) == pid) exited = true, grace_end = timer.seconds() + 0.2;
    if (exited || killed) continue;
    result.timed_out = timer.seconds() > options.timeout_seconds;
    result.canceled = options.canceled && options.canceled();
    if (result.timed_out || result.canceled) kill(-pid, SIGKILL), killed = true;
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = timer.seconds();
  return result;
}

CommandOutput run_command(const std::string& command, const ExternalOptions& options) {
  return run_program("/bin/sh", {"/bin/sh", "-c", command}, {}, options);
}

ExternalResult parse_step_time(const std::string& output, const std::string& where) {
  auto lines = split(output, '\n');
  for (size_t i = lines.size(); i-- > 0;)
    if (auto found = find_time(lines[i])) return *found;
  if (auto found = find_time(output)) return *found;
  fail("the command printed no step time", where,
       "Its last JSON line must have \"step_ms_median\" or \"ms\", in milliseconds. It printed:" +
           (output.empty() ? std::string(" nothing") : last_lines(output, 5)));
}

ExternalResult run_external(const std::string& command, const ExternalOptions& options) {
  CommandOutput run = run_command(command, options);
  std::string where = fmt::format("peer '{}'", printable(command)),
              said = last_lines(run.err.empty() ? run.out : run.err, 10);
  if (!said.empty()) said = "Its last messages:" + said;
  if (run.canceled) throw Error(Exit::interrupted, "interrupted", where);
  if (run.timed_out) fail(fmt::format("no result within {}", format_duration(options.timeout_seconds)), where, said);
  if (run.exit_code == 127) fail("a command was not found (exit code 127)", where, said);
  if (run.exit_code > 128) fail(fmt::format("ended by signal {}", run.exit_code - 128), where, said);
  if (run.exit_code != 0) fail(fmt::format("failed with exit code {}", run.exit_code), where, said);
  ExternalResult result = parse_step_time(run.out, where);
  result.seconds = run.seconds;
  return result;
}

}  // namespace crest
