#include "bench/comm_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

static constexpr double plain_seconds = 5;  // seconds between lines outside a terminal

CommProgress::CommProgress(size_t measurements) : measurements_(measurements), live_(isatty(STDERR_FILENO) == 1) {
  const char* term = std::getenv("TERM");
  live_ &= term && std::string(term) != "dumb";
}

void CommProgress::next(const std::string& what) {
  size_t done = started_++;
  // A rough estimate: larger sizes take longer, but at most --max-seconds.
  std::string left;
  if (done > 0)
    left = ", about " + format_duration(since_begin_.seconds() / double(done) * double(measurements_ - done)) + " left";
  std::string line = fmt::format("{} ({} of {}){}", what, started_, measurements_, left);
  if (live_) {
    // fmt::print would throw if standard error is closed.
    std::fputs(("\r\x1b[K" + fit_width(line, size_t(terminal_width(STDERR_FILENO) - 1))).c_str(), stderr);
    shown_ = true;
  } else if (since_line_.seconds() >= plain_seconds) {
    std::fputs((line + "\n").c_str(), stderr);
    since_line_ = {};
  }
}

void CommProgress::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

}  // namespace crest
