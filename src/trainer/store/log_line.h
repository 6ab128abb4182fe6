// Parses one line of a training program's output: numbers with their keys and units, with any
// punctuation. Reads the output of nanoGPT, llm.c, build-nanogpt, modded-nanogpt and Hugging Face's
// Trainer, and JSON objects like the rows of Crest's log.jsonl.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace crest {

// NaN: missing (or NaN in the log).
struct LogLine {
  LogLine();
  std::optional<int64_t> step;
  std::optional<int64_t> bar;  // step of a progress bar: "500/5000 [01:00<09:00, 8.33it/s]"
  double loss, val_loss, lr, grad_norm;
  double step_ms;     // of one step
  double elapsed_ms;  // since the start of training
  double tokens_per_second, memory_bytes, mfu;
  double steps_per_second;  // of the whole training, from its summary line
  bool skipped = false;
  bool braces = false;     // a {...}: may lack a step
  int without_unit = 0;    // times and sizes ignored because they have no unit
  bool has_loss = false;   // present, even if NaN
  bool says_step() const;  // it has data of a step
  bool says_nothing() const;
};

LogLine scan_log_line(std::string_view line);

}  // namespace crest
