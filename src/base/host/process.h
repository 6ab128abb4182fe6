// Identifies the process of a run, to distinguish a killed run from a running one.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

struct ProcessId {
  std::string host;   // hash of the host's name
  std::string boot;   // id of the machine's boot
  std::string space;  // PID namespace: process numbers of another container mean nothing here
  int64_t pid = 0;
  int64_t started = 0;  // clock ticks after boot: a reused process number has a different value
};

ProcessId this_process();

// elsewhere: on another machine or in another container, so its state is unknown here.
enum class Life { alive, gone, elsewhere };
Life life_of(const ProcessId& process);

}  // namespace crest
