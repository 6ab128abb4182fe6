// The times of a run's steps, read in one place: lists, comparisons and reports have one figure.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "store/record.h"

namespace crest {

// The first steps of a training load code and choose kernels.
inline constexpr int64_t warmup_steps = 2;

// The rows after warm-up, or all where no other has a time. A resumed run has one warm-up.
template <class Row>
std::vector<Row> after_warmup(const std::vector<Row>& rows) {
  std::vector<Row> steady;
  bool timed = false;
  for (auto& row : rows)
    if (row.step > warmup_steps) steady.push_back(row), timed |= row.step_ms > 0;
  return timed ? steady : rows;
}

// Milliseconds of the rows with a time.
template <class Row>
std::vector<double> times_of_rows(const std::vector<Row>& rows) {
  std::vector<double> ms;
  for (auto& row : rows)
    if (row.step_ms > 0 && row.step_ms < INFINITY) ms.push_back(row.step_ms);
  return ms;
}

// The samples of a measurement, throttled ones too (docs/concepts/measuring.md), else the logged
// steps after warm-up. Milliseconds, in order.
std::vector<double> step_times(const RunRecord& run);
// Tokens per second of the logged steps after warm-up, their median; 0: not logged.
double logged_rate(const RunRecord& run);

}  // namespace crest
