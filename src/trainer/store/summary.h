// Summaries of a run's log: smallest, mean and largest value of each block of rows, so that a curve
// of a million rows is drawn from a few hundred. Crest writes a block when its rows are complete.
// The mean of a block of 32 rows is that of its values, the mean of a larger block that of its
// blocks' means.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/database.h"
#include "store/record.h"

namespace crest {

// The summarized columns of the log, in order. Tokens per second follow from step_ms.
inline constexpr const char* summarized_columns[] = {"loss",    "val_loss",  "lr",    "grad_norm", "step_ms",
                                                     "wait_ms", "update_ms", "watts", "clock_mhz", "memory_bytes"};
inline constexpr size_t summarized_count = std::size(summarized_columns);

// The columns of the log in this file: format 1 has fewer.
std::span<const LogColumn> log_columns_of(Database& database);

// CREATE TABLE log_summary, and the names of its columns.
std::string summary_table();
std::string summary_columns();
// After rows [first, end) of a run were added.
void summarize(Database& database, int64_t run, int64_t first, int64_t end);
// All runs of a file that has no summaries yet.
void summarize_all(Database& database);
void forget_summaries(Database& database, int64_t run);

// A curve's points. Point i stands for rows [i * rows_per_point, (i + 1) * rows_per_point).
struct LogPoint {
  int64_t index = 0, rows = 0, first_step = 0, last_step = 0;
  double seconds = 0;  // sum of step_ms
  struct Range {
    double low, mean, high;  // NaN: no value in the rows
  } columns[summarized_count];
};
struct LogCurve {
  int64_t rows = 0;            // in the log
  int64_t rows_per_point = 1;  // a power of two
  std::string writer;          // the process that wrote the log; a resumed run writes it again
  std::vector<LogPoint> points;
};
// At most `most_points` points, and at least half as many if the log has as many rows. known: a
// curve read before. If it has grown and its rows_per_point still holds, only its last point and
// later ones are read, else all.
LogCurve read_curve(Database& database, int64_t run, int64_t most_points, const LogCurve* known = nullptr);

}  // namespace crest
