#include "cli/conversion_progress.h"

#include <unistd.h>

#include "core/error.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"

namespace crest {

std::function<void(uint64_t, uint64_t)> conversion_progress(const char* command, const char* doing) {
  bool live = isatty(STDERR_FILENO) == 1;
  return [=, shown = uint64_t(0)](uint64_t done, uint64_t all) mutable {
    if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", command, "No files were left behind.");
    if (!live || (done < all && done - shown < all / 50)) return;
    shown = done;
    to_stderr("\r\x1b[K{} {:3.0f}%{}", doing, 100 * double(done) / double(all), done == all ? "\r\x1b[K" : "");
    std::fflush(stderr);
  };
}

}  // namespace crest
