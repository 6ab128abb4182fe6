// Progress of a training run: one live line in a terminal, plain lines elsewhere. Standard error
// only.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "core/timer.h"

namespace crest {

// One optimizer step. Negative or NaN means unknown, and is not shown (loss and grad_norm show NaN
// as "nan").
struct StepReport {
  int64_t step = 0, total_steps = -1;  // step counts from 1; total -1 = open end
  double loss = NAN, grad_norm = -1, lr = -1;
  double step_ms = -1, tokens_per_second = -1;
  double flops_per_second = -1;  // model FLOPs, the convention of `mfu`
  int64_t memory_bytes = -1;
  double eta_seconds = -1;
  bool skipped = false;  // the update was skipped (NaN, fp16 overflow)
};

// The line, at most `width` columns; the least important fields are dropped first.
std::string progress_line(const StepReport& report, int width);

struct ProgressOptions {
  std::FILE* out = stderr;
  int64_t every_steps = 10;   // plain lines: this many steps apart ...
  double every_seconds = 5;   // ... and at least this far apart; the first and the last step always
  double live_seconds = 0.1;  // live line: redrawn no more often than this
  bool quiet = false;         // no step lines at all, messages only
  // -1 = detect (a terminal with cursor movement); tests set 0 or 1
  int live = -1;
  int width = 0;   // 0 = ask the terminal at every redraw
  int color = -1;  // -1 = decided by the terminal and NO_COLOR
};

// Not thread-safe. The cursor is never hidden, so a killed process leaves nothing to restore.
// finish() or the destructor ends the live line with a newline.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  // A line (or lines) above the live line. Warnings are colored, if the terminal has color.
  void message(std::string_view text);
  void warning(std::string_view text);
  // Ends the live line with its last report. Later reports start a new one.
  void finish();

  bool live() const { return live_; }

 private:
  void draw();
  void erase();
  void print(std::string_view text, const char* color);

  ProgressOptions options_;
  bool live_ = false, color_ = false;
  bool drawn_ = false;    // the live line is on the screen
  bool pending_ = false;  // last_ has not been shown
  bool any_ = false;      // a plain line has been printed
  StepReport last_;
  int64_t last_printed_step_ = 0;
  Timer since_last_;
};

}  // namespace crest
