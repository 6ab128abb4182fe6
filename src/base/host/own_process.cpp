#include "host/own_process.h"

#include <fmt/format.h>
#include <string.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "host/stop_signal.h"

namespace crest {

namespace {

// A measurement takes minutes at most; this limit ends a hung one.
constexpr double longest_seconds = 1800;

// "PROBLEM" from the last line "crest: error: PROBLEM", else the last line; "" without any output.
std::string last_message(const std::string& text) {
  std::string last;
  for (auto& line : split(text, '\n')) {
    constexpr std::string_view mark = "crest: error: ";
    if (line.starts_with(mark)) last = line.substr(mark.size());
  }
  if (last.empty())
    for (auto& line : split(text, '\n'))
      if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  return printable(last, 300);
}

std::string how_it_ended(const CommandOutput& o) {
  if (o.timed_out) return fmt::format("did not finish within {}", format_duration(longest_seconds));
  if (o.exit_code == int(Exit::ok)) return "printed no JSON";
  if (o.exit_code > 128)
    return fmt::format("was ended by signal {} ({})", o.exit_code - 128, strsignal(o.exit_code - 128));
  return fmt::format("ended with exit code {}", o.exit_code);
}

}  // namespace

nlohmann::ordered_json document_of(const CommandOutput& o, const std::string& what) {
  if (o.canceled || o.exit_code == int(Exit::interrupted)) throw Error(Exit::interrupted, "interrupted", what);
  std::string said = last_message(o.err);
  if (o.exit_code == int(Exit::does_not_fit)) throw Error(Exit::does_not_fit, said, what);
  if (o.exit_code == int(Exit::ok) && !o.timed_out) {
    JsonLimits limits;
    limits.values = 5'000'000, limits.keys = 10'000;
    try {
      return parse_ordered_json_guarded(o.out, limits, what);
    } catch (const Error& e) {
      said = e.problem();
    }
  }
  fail(fmt::format("the process {}{}", how_it_ended(o), said.empty() ? "" : ": " + said), what);
}

nlohmann::ordered_json run_own_process(const std::vector<std::string>& arguments,
                                       const std::vector<Variable>& variables) {
  std::vector<std::string> command = {"crest"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ExternalOptions options;
  options.kept_output = size_t(64) << 20;  // a profile is large
  options.timeout_seconds = longest_seconds;
  options.canceled = [] { return StopSignal::requested(); };
  return document_of(run_program("/proc/self/exe", command, variables, options), "crest " + arguments.at(0));
}

}  // namespace crest
