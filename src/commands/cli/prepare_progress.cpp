#include "cli/prepare_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/text.h"
#include "core/to_stderr.h"
#include "terminal/table.h"

namespace crest {

PreparationProgress::PreparationProgress(double silent_seconds)
    : live_(isatty(STDERR_FILENO)), silent_seconds_(silent_seconds) {}
PreparationProgress::~PreparationProgress() { clear(); }

std::function<void(const PrepareProgress&)> PreparationProgress::stages() {
  return [this](const PrepareProgress& p) { show(p); };
}
std::function<void(const std::string&)> PreparationProgress::messages() {
  return [this](const std::string& text) { message(text); };
}

void PreparationProgress::show(const PrepareProgress& p) {
  bool fresh = stage_ != p.stage;
  if (fresh) stage_ = p.stage, in_stage_ = {};
  if (since_begin_.seconds() < silent_seconds_) return;
  if (!live_) {
    if (printed_ != stage_) to_stderr("{} ...\n", p.stage);
    printed_ = stage_;
    return;
  }
  if (!fresh && since_shown_.seconds() < 0.1) return;
  since_shown_ = {};
  double seconds = in_stage_.seconds();
  double share = p.total ? double(p.done) / double(p.total) : 0;
  std::string left = share > 0.01 && seconds > 1 ? format_duration(seconds / share * (1 - share)) + " left" : "";
  to_stderr("\r\x1b[K{}", fit_width(fmt::format("{} {:3.0f}%  {}", p.stage, 100 * share, left),
                                    size_t(std::max(terminal_width(STDERR_FILENO) - 1, 10))));
  std::fflush(stderr);
  drawn_ = true;
}

void PreparationProgress::message(const std::string& text) {
  clear();
  to_stderr("{}\n", printable(text, 2000));
}

void PreparationProgress::clear() {
  if (drawn_) to_stderr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace crest
