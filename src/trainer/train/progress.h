// Progress of a training run on standard error: one live line in a terminal, plain lines elsewhere.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "core/timer.h"

namespace crest {

// An optimizer step. Negative or NaN values are unknown and not shown (loss and grad_norm show NaN
// as "nan").
struct StepReport {
  int64_t step = 0, total_steps = -1;  // step counts from 1; total -1: no end
  double loss = NAN, grad_norm = -1, lr = -1;
  double step_ms = -1, tokens_per_second = -1;
  double flops_per_second = -1;  // model FLOPs, as for `mfu`
  int64_t memory_bytes = -1;
  double eta_seconds = -1;
  bool skipped = false;  // the update was skipped (NaN, fp16 overflow)
};

// The line in at most `width` columns. Drops the least important fields first.
std::string progress_line(const StepReport& report, int width);

struct ProgressOptions {
  std::FILE* out = stderr;
  int64_t every_steps = 10;   // plain lines: at least this many steps apart ...
  double every_seconds = 5;   // ... and this many seconds; first and last step always
  double live_seconds = 0.1;  // live line: minimum time between updates
  bool quiet = false;         // no step lines, messages only
  // -1: detect (a terminal with cursor movement); tests set 0 or 1
  int live = -1;
  int width = 0;   // 0: ask the terminal at every update
  int color = -1;  // -1: as the terminal and NO_COLOR decide
};

// Not thread-safe. It never hides the cursor, so a killed process leaves nothing to restore.
// finish() or the destructor ends the live line with a newline.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  // Prints lines above the live line. Warnings are colored if the terminal has color.
  void message(std::string_view text);
  void warning(std::string_view text);
  // Ends the live line after its last report. Later reports start a new line.
  void finish();

  bool live() const { return live_; }

 private:
  void draw();
  void erase();
  void print(std::string_view text, const char* color);

  ProgressOptions options_;
  bool live_ = false, color_ = false;
  bool drawn_ = false;    // the live line is on screen
  bool pending_ = false;  // last_ is not shown yet
  bool any_ = false;      // a plain line was printed
  StepReport last_;
  int64_t last_printed_step_ = 0;
  Timer since_last_;
};

}  // namespace crest
