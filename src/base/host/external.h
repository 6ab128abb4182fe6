// An external command as a peer: any program with its step time in JSON can be measured next to
// Crest.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "host/child.h"

namespace crest {

struct ExternalOptions {
  double timeout_seconds = 600;
  // Polled ten times a second. true ends the command (pass the stop signal's flag). May be empty.
  std::function<bool()> canceled = {};
  size_t kept_output = size_t(4) << 20;  // bytes of standard output to keep: the last ones
};

struct CommandOutput {
  int exit_code = 0;  // 128 + signal if a signal ended it, as shells report it
  bool timed_out = false, canceled = false;
  std::string out, err;  // the last kept_output bytes of standard output, the last 64 KiB of standard error
  double seconds = 0;
};

// Runs a program with arguments (the first is its name) and waits. `variables` override this
// process's own. The program gets its own process group and /dev/null as standard input. At the
// timeout or on cancellation, the whole group is killed. Throws only if the program cannot be
// started.
CommandOutput run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const std::vector<Variable>& variables = {}, const ExternalOptions& options = {});
// The same for `/bin/sh -c command`.
CommandOutput run_command(const std::string& command, const ExternalOptions& options = {});

struct ExternalResult {
  double step_ms = 0;  // the value found
  std::string key;     // "step_ms_median" or "ms"
  std::string json;    // the object with the value, as compact JSON
  double seconds = 0;  // of the whole command
};

// Runs a peer and reads its step time: from the last line of standard output with a JSON object (or
// a list of objects; or the whole output as one document) with `step_ms_median` (crest bench
// --json) or `ms`. Of several rows, the one with phase "step" is used. Throws with the end of the
// command's messages if it fails, times out or prints no time.
ExternalResult run_external(const std::string& command, const ExternalOptions& options = {});

// The last lines of a text, made safe for a terminal, each on its own line; "" if there are none.
std::string last_lines(const std::string& text, size_t lines);

// Only the parser. `where` names the source in errors.
ExternalResult parse_step_time(const std::string& output, const std::string& where);

}  // namespace crest
