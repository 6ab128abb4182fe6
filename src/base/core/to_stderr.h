// Notes and progress on standard error.
#pragma once
#include <fmt/format.h>

#include <cstdio>

namespace crest {

// Like say(...), which throws if standard error is closed or on a full disk; here such errors are
// ignored, because no work should be lost for a note.
template <class... A>
void to_stderr(fmt::format_string<A...> format, A&&... arguments) {
  std::fputs(fmt::format(format, std::forward<A>(arguments)...).c_str(), stderr);
}

}  // namespace crest
