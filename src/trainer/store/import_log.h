// Imports the output of a training program as a run: its steps, and medians as the measurement.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// A table of results (store/result_rows.h): each row becomes a run of one measurement. The runs
// share a grid.
struct ImportedResults {
  std::vector<RunRecord> records;
  int64_t out_of_memory = 0;      // of these
  int64_t lines = 0, others = 0;  // others: lines without a batch size
  int64_t repeated = 0, unreadable = 0;
  std::string first_unreadable;  // with its line number
};
// A text as either of them. With steps it is a log. Throws for a text with neither.
struct ImportedText {
  std::optional<ImportedLog> log;
  std::optional<ImportedResults> results;
  int64_t results_left_out = 0;  // rows of results in a log
};
ImportedText import_text(LineReader& lines, const LogDescription& description);

}  // namespace crest
