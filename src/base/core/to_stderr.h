// Notes and progress on standard error.
#pragma once
#include <fmt/format.h>

#include <cstdio>

namespace crest {

// Like say(...), but ignores a closed standard error or a full disk, because no work should be lost
// for a note.
template <class... A>
void to_stderr(fmt::format_string<A...> format, A&&... arguments) {
  std::fputs(fmt::format(format, std::forward<A>(arguments)...).c_str(), stderr);
}

}  // namespace crest
