#include "host/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "core/sha256.h"
#include "core/text.h"
#include "host/cgroup.h"

namespace crest {

namespace {

struct Stat {
  char state = 0;  // 0: no such process
  int64_t started = 0;
};

// /proc/PID/stat: "PID (NAME) STATE ...". The name may contain anything, so fields are counted from
// the last ')'.
Stat read_stat(int64_t pid) {
  std::string text = read_system_file(fmt::format("/proc/{}/stat", pid));
  size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  auto fields = split(text.substr(std::min(name_end + 2, text.size())), ' ');
  if (fields.size() < 20 || fields[0].empty()) return {};
  return {fields[0][0], std::atoll(fields[19].c_str())};  // fields 3 and 22 of proc(5)
}

std::string pid_namespace() {
  char text[64] = {};
  ssize_t size = ::readlink("/proc/self/ns/pid", text, sizeof text - 1);
  return size > 0 ? std::string(text, size_t(size)) : "";
}

}  // namespace

ProcessId this_process() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  ProcessId p;
  p.host = sha256_hex(name, std::char_traits<char>::length(name)).substr(0, 16);
  p.boot = split(read_system_file("/proc/sys/kernel/random/boot_id"), '\n')[0];
  p.space = pid_namespace();
  p.pid = getpid();
  p.started = read_stat(p.pid).started;
  return p;
}

Life life_of(const ProcessId& process) {
  ProcessId here = this_process();
  if (process.host != here.host) return Life::elsewhere;
  if (process.boot != here.boot) return Life::gone;
  if (process.space != here.space) return Life::elsewhere;
  Stat stat = read_stat(process.pid);
  bool runs = stat.state != 0 && stat.state != 'Z' && stat.state != 'X' && stat.started == process.started;
  return runs ? Life::alive : Life::gone;
}

}  // namespace crest
