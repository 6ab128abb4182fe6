#include "bench/comm_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

using Clock = std::chrono::steady_clock;

static constexpr double plain_seconds = 5;  // between lines without a terminal

static double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

CommProgress::CommProgress(size_t measurements)
    : measurements_(measurements), begin_(Clock::now()), live_(isatty(STDERR_FILENO) == 1) {
  const char* term = std::getenv("TERM");
  live_ &= term && std::string(term) != "dumb";
  printed_ = begin_;
}

void CommProgress::next(const std::string& what) {
  size_t done = started_++;
  // A rough estimate: larger sizes take longer, but at most --max-seconds.
  std::string left;
  if (done > 0)
    left = ", about " + format_duration(seconds_since(begin_) / double(done) * double(measurements_ - done)) + " left";
  std::string line = fmt::format("{} ({} of {}){}", what, started_, measurements_, left);
  if (live_) {
    // Not fmt::print, which throws when standard error is closed.
    std::fputs(("\r\x1b[K" + fit_width(line, size_t(terminal_width(STDERR_FILENO) - 1))).c_str(), stderr);
    shown_ = true;
  } else if (seconds_since(printed_) >= plain_seconds) {
    std::fputs((line + "\n").c_str(), stderr);
    printed_ = Clock::now();
  }
}

void CommProgress::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

}  // namespace crest
