#include "store/summary.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace crest {

namespace {

// Rows of the blocks: 32, 512, 8192, ... A level is made from the one below it.
constexpr int64_t first_block = 32, blocks_per_block = 16;
constexpr size_t columns_of_version_1 = 5;  // up to step_ms
// More than any run has. Numbers of rows in a foreign file may be anything.
constexpr int64_t most_rows = int64_t(1) << 40;

// "min(loss), avg(loss), max(loss), ..." of rows, or of blocks.
std::string aggregates(bool of_blocks, size_t columns = summarized_count) {
  std::string text =
      of_blocks ? "min(step_first), max(step_last), total(seconds)" : "min(step), max(step), total(step_ms) / 1000";
  for (size_t i = 0; i < summarized_count; ++i)
    text += i >= columns ? ", NULL, NULL, NULL"
            : of_blocks  ? fmt::format(", min({0}_low), avg({0}_mean), max({0}_high)", summarized_columns[i])
                         : fmt::format(", min({0}), avg({0}), max({0})", summarized_columns[i]);
  return text;
}

// The largest block that divides `rows`, a power of two; 1: rows of the log.
int64_t block_of(int64_t rows) {
  int64_t block = 1;
  for (int64_t larger = first_block; larger <= rows; larger *= blocks_per_block) block = larger;
  return block;
}

void add_points(Statement& s, std::vector<LogPoint>& points) {
  while (s.step()) {
    LogPoint p;
    p.index = s.integer(0), p.rows = s.integer(1), p.first_step = s.integer(2), p.last_step = s.integer(3);
    p.seconds = s.real(4);
    for (size_t c = 0; c < summarized_count; ++c) {
      const int at = 5 + 3 * int(c);
      p.columns[c] = {s.real(at), s.real(at + 1), s.real(at + 2)};
    }
    points.push_back(p);
  }
}

// A point may lie partly in blocks, partly in rows after the last complete block.
void join_points(std::vector<LogPoint>& points) {
  for (size_t i = 1; i < points.size(); ++i) {
    LogPoint &a = points[i - 1], &b = points[i];
    if (a.index != b.index) continue;
    a.first_step = std::min(a.first_step, b.first_step), a.last_step = std::max(a.last_step, b.last_step);
    a.seconds += b.seconds;
    for (size_t c = 0; c < summarized_count; ++c) {
      auto &x = a.columns[c], &y = b.columns[c];
      const double mean = std::isnan(x.mean) ? y.mean
                          : std::isnan(y.mean)
                              ? x.mean
                              : (double(a.rows) * x.mean + double(b.rows) * y.mean) / (double(a.rows) + double(b.rows));
      x = {std::fmin(x.low, y.low), mean, std::fmax(x.high, y.high)};
    }
    a.rows += b.rows;
    points.erase(points.begin() + ptrdiff_t(i));
  }
}

int64_t rows_of(Database& database, int64_t run) {
  Statement s(database, "SELECT coalesce(max(number) + 1, 0) FROM log WHERE run = ?");
  s.add(run).step();
  if (s.integer(0) < 0 || s.integer(0) > most_rows) database.fail_with(SQLITE_CORRUPT);
  return s.integer(0);
}

std::string writer_of(Database& database, int64_t run) {
  Statement s(database, "SELECT pid || '-' || pid_started FROM runs WHERE id = ?");
  return s.add(run).step() ? s.text(0) : "";
}

}  // namespace

std::span<const LogColumn> log_columns_of(Database& database) {
  std::span<const LogColumn> all = log_columns;
  return database.integer("PRAGMA user_version") < 2 ? all.first(log_columns_before_skipped) : all;
}

std::string summary_columns() {
  std::string names = "run rows number step_first step_last seconds";
  for (const char* c : summarized_columns) names += fmt::format(" {0}_low {0}_mean {0}_high", c);
  return names;
}

std::string summary_table() {
  std::string columns;
  for (const char* c : summarized_columns) columns += fmt::format("  {0}_low REAL, {0}_mean REAL, {0}_high REAL,\n", c);
  return fmt::format(
      "CREATE TABLE log_summary (\n"
      "  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,\n"
      "  rows INTEGER NOT NULL,\n"
      "  number INTEGER NOT NULL,\n"
      "  step_first INTEGER NOT NULL, step_last INTEGER NOT NULL, seconds REAL NOT NULL,\n"
      "{}"
      "  PRIMARY KEY (run, rows, number)\n"
      ") WITHOUT ROWID",
      columns);
}

void summarize(Database& database, int64_t run, int64_t first, int64_t end) {
  if (first < 0 || end > most_rows) database.fail_with(SQLITE_CORRUPT);
  for (int64_t block = first_block, below = 1; end / block > first / block; below = block, block *= blocks_per_block) {
    const std::string source = below == 1 ? "log WHERE run = ?" : "log_summary WHERE run = ? AND rows = ?";
    Statement s(database,
                fmt::format("INSERT INTO log_summary SELECT run, {0}, number / {1}, {2} FROM {3} AND number >= ? "
                            "AND number < ? GROUP BY number / {1}",
                            block, block / below, aggregates(below > 1), source));
    s.add(run);
    if (below > 1) s.add(below);
    s.add(first / block * block / below).add(end / block * block / below).run();
  }
}

void summarize_all(Database& database) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  Statement s(database, "SELECT id FROM runs");
  while (s.step()) runs.push_back({s.integer(0), rows_of(database, s.integer(0))});
  for (auto& [run, rows] : runs) summarize(database, run, 0, rows);
}

void forget_summaries(Database& database, int64_t run) {
  Statement(database, "DELETE FROM log_summary WHERE run = ?").add(run).run();
}

LogCurve read_curve(Database& database, int64_t run, int64_t most_points, const LogCurve* known) {
  LogCurve curve;
  // The writer first: if a run is continued in between, the next call sees another one and reads
  // all.
  curve.writer = writer_of(database, run);
  curve.rows = rows_of(database, run);
  while (curve.rows > curve.rows_per_point * most_points) curve.rows_per_point *= 2;
  const int64_t per_point = curve.rows_per_point;
  const bool grows = known && known->rows_per_point == per_point && known->rows <= curve.rows && known->rows > 0 &&
                     known->writer == curve.writer;
  const int64_t from = grows ? (known->rows - 1) / per_point * per_point : 0;
  const bool version_1 = database.integer("PRAGMA user_version") < 2;
  const int64_t block = version_1 ? 1 : block_of(per_point);
  const int64_t in_blocks = block == 1 ? from : std::max(from, curve.rows / block * block);
  if (in_blocks > from) {
    Statement s(
        database,
        fmt::format("SELECT number / {0}, sum(rows), {1} FROM log_summary WHERE run = ? AND rows = {2} AND number >= ? "
                    "AND number < ? GROUP BY 1 ORDER BY 1",
                    per_point / block, aggregates(true), block));
    add_points(s.add(run).add(from / block).add(in_blocks / block), curve.points);
  }
  Statement s(
      database,
      fmt::format(
          "SELECT number / {}, count(*), {} FROM log WHERE run = ? AND number >= ? AND number < ? GROUP BY 1 ORDER "
          "BY 1",
          per_point, aggregates(false, version_1 ? columns_of_version_1 : summarized_count)));
  add_points(s.add(run).add(in_blocks).add(curve.rows), curve.points);
  join_points(curve.points);
  return curve;
}

}  // namespace crest
