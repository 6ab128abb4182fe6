// Notes and progress on standard error.
#pragma once
#include <fmt/format.h>

#include <cstdio>

namespace crest {

// As say(...), which throws when standard error is closed or on a full disk: no work is lost for a note.
template <class... A>
void to_stderr(fmt::format_string<A...> format, A&&... arguments) {
  std::fputs(fmt::format(format, std::forward<A>(arguments)...).c_str(), stderr);
}

}  // namespace crest
