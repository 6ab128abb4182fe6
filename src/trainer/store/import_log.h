// Imports the output of a training program as a run: its steps, and medians as the measurement.
#pragma once
#include <cstdint>
#include <string>

#include "store/lines.h"
#include "store/record.h"

namespace crest {

inline constexpr uint64_t log_line_limit = uint64_t(4) << 20;  // bytes

// The parts missing in the log; "" and 0 when unknown.
struct LogDescription {
  std::string name = {}, model = {}, device = {};
  int64_t batch = 0, seq = 0;  // sequences per step, tokens per sequence
};

struct ImportedLog {
  RunRecord record;
  int64_t lines = 0, skipped = 0;  // skipped: lines without training data
  int64_t steps = 0, validations = 0;
  int64_t without_unit = 0;  // times and sizes ignored because they had no unit
  bool numbered = false;     // the log has no step numbers, so its rows were counted
};

// Throws for a text without any step.
ImportedLog import_log(LineReader& lines, const LogDescription& description);

}  // namespace crest
