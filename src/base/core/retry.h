// How core/io.h and core/folder.h call the system.
#pragma once
#include <cerrno>
#include <string>
#include <vector>

namespace crest {

// Throws a SystemError: "cannot DOING: REASON", with the remedy.
[[noreturn]] void fail_errno(int code, const char* doing, const std::string& path);

// The sorted names in an open folder; closes it.
std::vector<std::string> names_of(int fd, const std::string& path);

// Repeats a call interrupted by a signal.
template <class Call>
auto retry(Call call) {
  for (;;) {
    auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace crest
