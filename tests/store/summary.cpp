// Curves from summaries against the rows themselves, and files of format 1.
#include "store/summary.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "store/files.h"

namespace crest::test {

namespace {

constexpr size_t loss = 0, val_loss = 1, step_ms = 4, watts = 7;

class Summary : public testing::Test {
 protected:
  Folder folder_;
  std::string file_ = folder_ / "runs.db";
  Store store_{file_};
  std::vector<LogRow> rows_;
  int64_t run_ = begin();
  std::mt19937 random_{7};

  int64_t begin() {
    RunRecord r = bench_record("run");
    r.kind = "train";
    return store_.begin(r);
  }
  // Rows as a training writes them: steps, some without a loss, and now and then a validation.
  void add(int64_t count) {
    std::vector<LogRow> rows{size_t(count), LogRow()};
    std::uniform_real_distribution<double> uniform(0, 10);
    for (auto& row : rows) {
      row.step = int64_t(rows_.size());
      if (random_() % 50 == 0)
        row.val_loss = uniform(random_);
      else
        row.step_ms = uniform(random_), row.watts = 100 + uniform(random_);
      if (random_() % 7 && std::isnan(row.val_loss)) row.loss = uniform(random_);
      rows_.push_back(row);
    }
    store_.add_log(run_, rows);
  }
  // Each point has the smallest and largest value of its rows, and they are all there.
  void expect_right(const LogCurve& curve, int64_t most_points, const std::vector<LogRow>& rows) {
    ASSERT_EQ(curve.rows, int64_t(rows.size()));
    ASSERT_LE(int64_t(curve.points.size()), most_points);
    EXPECT_GE(2 * int64_t(curve.points.size()), std::min(curve.rows, most_points));
    double seconds = 0, expected_seconds = 0;
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const LogPoint& p = curve.points[i];
      ASSERT_EQ(p.index, int64_t(i));
      const size_t first = i * size_t(curve.rows_per_point),
                   end = std::min(first + size_t(curve.rows_per_point), rows.size());
      EXPECT_EQ(p.first_step, int64_t(first));
      EXPECT_EQ(p.last_step, int64_t(end) - 1);
      seconds += p.seconds;
      for (auto [c, field] : {std::pair{loss, &LogRow::loss},
                              {val_loss, &LogRow::val_loss},
                              {step_ms, &LogRow::step_ms},
                              {watts, &LogRow::watts}}) {
        double low = NAN, high = NAN, sum = 0, count = 0;
        for (size_t k = first; k < end; ++k)
          if (double x = rows[k].*field; !std::isnan(x))
            low = std::fmin(low, x), high = std::fmax(high, x), sum += x, ++count;
        const auto& range = p.columns[c];
        ASSERT_EQ(std::isnan(low), std::isnan(range.low)) << summarized_columns[c] << " of point " << i;
        if (std::isnan(low)) continue;
        ASSERT_EQ(range.low, low) << summarized_columns[c] << " of point " << i;
        ASSERT_EQ(range.high, high) << summarized_columns[c] << " of point " << i;
        ASSERT_GE(range.mean, low);
        ASSERT_LE(range.mean, high);
        // Where rows lack values, a block counts as much as any other.
        if (count == double(end - first)) {
          EXPECT_NEAR(range.mean, sum / count, 1e-9 * std::abs(sum)) << i;
        }
      }
    }
    for (auto& row : rows)
      if (!std::isnan(row.step_ms)) expected_seconds += row.step_ms / 1000;
    EXPECT_NEAR(seconds, expected_seconds, 1e-9 * double(rows.size()) + 1e-12);
  }
};

}  // namespace

TEST_F(Summary, HasTheExtremesOfAllRows) {
  for (int64_t count : {1, 30, 1, 500, 31, 700, 9000, 3, 17}) {
    add(count);
    for (int64_t points : {1, 7, 100}) expect_right(store_.curve(run_, points), points, rows_);
  }
  EXPECT_EQ(raw_sql(file_, "SELECT group_concat(DISTINCT rows) FROM log_summary"), "32,512,8192");
  EXPECT_EQ(raw_sql(file_, "SELECT count(*) FROM log_summary WHERE rows = 32"), std::to_string(rows_.size() / 32));
}

TEST_F(Summary, RefusesNumbersThatNoRunHas) {
  add(40);
  raw_sql(file_, "UPDATE log SET number = 1 << 61 WHERE number = 39");
  EXPECT_THROW(store_.curve(run_, 100), Error);
  EXPECT_THROW(add(1), Error);
}

TEST_F(Summary, ReadsOnlyNewPointsOfAKnownCurve) {
  add(1000);
  LogCurve known = store_.curve(run_, 100);
  for (int64_t count : {1, 15, 40, 300}) {
    add(count);
    LogCurve more = store_.curve(run_, 100, &known);
    ASSERT_EQ(more.rows_per_point, known.rows_per_point);
    EXPECT_LE(int64_t(more.points.size()), count / more.rows_per_point + 2) << "not the whole curve again";
    known.points.resize(size_t(more.points.at(0).index));
    known.points.insert(known.points.end(), more.points.begin(), more.points.end());
    known.rows = more.rows;
    expect_right(known, 100, rows_);
  }
  add(1000);  // no longer 100 points: all of it
  expect_right(store_.curve(run_, 100, &known), 100, rows_);
  known = store_.curve(run_, 100);
  known.writer = "another process";
  expect_right(store_.curve(run_, 100, &known), 100, rows_);
}

TEST_F(Summary, IsForgottenWithTheRun) {
  add(600);
  store_.reopen(run_);
  EXPECT_EQ(store_.curve(run_, 10).rows, 0);
  rows_.clear();
  add(40);
  expect_right(store_.curve(run_, 10), 10, rows_);
  store_.erase(run_);
  EXPECT_EQ(raw_sql(file_, "SELECT count(*) FROM log_summary"), "0");
}

TEST_F(Summary, IsMadeForAFileOfFormat1) {
  add(2000);
  RunRecord before = store_.load(run_);
  { Store closing = std::move(store_); }
  raw_sql(file_,
          "DROP TABLE log_summary; ALTER TABLE log DROP COLUMN wait_ms; ALTER TABLE log DROP COLUMN update_ms; "
          "ALTER TABLE log DROP COLUMN watts; ALTER TABLE log DROP COLUMN clock_mhz; "
          "ALTER TABLE log DROP COLUMN memory_bytes; PRAGMA user_version = 1");
  for (auto& row : rows_) row.watts = NAN;
  {
    Store reader(file_, Store::Mode::read);
    expect_right(reader.curve(run_, 50), 50, rows_);
    ASSERT_EQ(reader.load(run_).log.size(), rows_.size());
    EXPECT_EQ(reader.load(run_).log[5].step_ms, before.log[5].step_ms);
    EXPECT_TRUE(std::isnan(reader.load(run_).log[5].watts));
  }
  EXPECT_EQ(raw_sql(file_, "PRAGMA user_version"), "1") << "reading changes nothing";
  Store store(file_);
  EXPECT_EQ(raw_sql(file_, "PRAGMA user_version"), "2");
  expect_right(store.curve(run_, 50), 50, rows_);
  EXPECT_EQ(raw_sql(file_, "SELECT count(*) FROM log_summary"), std::to_string(2000 / 32 + 2000 / 512));
  LogRow row;
  row.step = 2000, row.watts = 250;
  store.add_log(run_, {row});
  EXPECT_EQ(store.load(run_).log.back().watts, 250);
}

}  // namespace crest::test
