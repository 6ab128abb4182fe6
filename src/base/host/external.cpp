#include "host/external.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "host/child.h"

namespace crest {

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

using json = nlohmann::json;

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
  pid_t pid = spawn_child(file, arguments, variables, out, err);
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
  result.exit_code = exit_code_of(status);
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
