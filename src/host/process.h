// Which process a run belongs to, so that a run whose process was killed can be told from one that still runs.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

struct ProcessId {
  std::string host;   // hash of the host's name
  std::string boot;   // id of the machine's start
  std::string space;  // PID namespace: numbers of another container mean nothing here
  int64_t pid = 0;
  int64_t started = 0;  // clock ticks after the machine's start: a reused number has another
};

ProcessId this_process();

// elsewhere: on another machine or in another container, so it cannot be told from here.
enum class Life { alive, gone, elsewhere };
Life life_of(const ProcessId& process);

}  // namespace crest
