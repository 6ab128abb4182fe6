#include "host/file_lock.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/text.h"

namespace crest {

static std::string name_of(int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(in, name);
  return printable(name, 40);
}

// Lines such as "1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF"; waiting processes have "->"
// after the number.
std::string lock_holder(const std::vector<std::string>& files) {
  std::vector<uint64_t> inodes;
  for (auto& file : files) {
    struct stat info;
    if (::stat(file.c_str(), &info) == 0) inodes.push_back(info.st_ino);
  }
  int64_t holder = 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream in(line);
    std::string number, kind, advisory, mode, file;
    int64_t pid = 0;
    if (!(in >> number >> kind) || kind == "->" || !(in >> advisory >> mode >> pid >> file)) continue;
    size_t colon = file.rfind(':');
    if (pid <= 0 || pid == ::getpid() || colon == std::string::npos) continue;
    uint64_t inode = std::strtoull(file.c_str() + colon + 1, nullptr, 10);
    if (std::find(inodes.begin(), inodes.end(), inode) == inodes.end()) continue;
    if (holder == 0 || mode == "WRITE") holder = pid;
    if (mode == "WRITE") break;
  }
  if (holder == 0) return "";
  std::string name = name_of(holder);
  return name.empty() ? fmt::format("process {}", holder) : fmt::format("process {} ({})", holder, name);
}

}  // namespace crest
