// Commands on a run database locked by another process, and on one with a damaged run.
#include <sqlite3.h>

#include "cli/train_harness.h"

using namespace crest::test;

namespace {

// A connection of this process, holding a lock as long as it lives.
class Lock {
 public:
  Lock(const std::string& file, const char* sql) {
    EXPECT_EQ(sqlite3_open(file.c_str(), &db_), SQLITE_OK);
    sqlite3_busy_timeout(db_, int(1000 * longest_wait));
    EXPECT_EQ(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db_);
  }
  ~Lock() { sqlite3_close(db_); }
  Lock(const Lock&) = delete;

 private:
  sqlite3* db_ = nullptr;
};

constexpr const char* whole_lock = "PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE";
constexpr const char* writers_lock = "BEGIN IMMEDIATE";

void run_sql(const std::string& file, const std::string& sql) { Lock(file, sql.c_str()); }

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST(LockedStoreCli, CommandsThatNeedItEndWithOneError) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  Lock lock(f / "crest.db", whole_lock);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"runs", "list"}, {"runs", "show", "1"}, {"runs", "delete", "1", "--yes"}}) {
    auto words = command;
    words.insert(words.end(), {"--store-wait", "0.05"});
    expect_error(words, 1, {"keeps the run database locked", "crest.db"}, f.options());
  }
}

TEST(LockedStoreCli, TrainingGoesOnWithoutIt) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  Lock lock(f / "crest.db", whole_lock);
  RunResult r = f.train("other", 3, {"--store-wait", "0.05"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(count(r.err, "warning"), 1u) << r.err;
  EXPECT_NE(r.err.find("the run is not recorded"), std::string::npos) << r.err;
  EXPECT_EQ(f.checkpoints("other").back(), "step-000003");
}

// Ctrl-C ends the wait for the database, at the start of a run and in the middle.
TEST(LockedStoreCli, CtrlCEndsTheWait) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  const std::vector<std::string> endless_run = {
      "train", "--data",    "data", "--model",     "tiny.toml", "--batch",      "2", "--out",        "waits", "--steps",
      endless, "--threads", "1",    "--val-every", "0",         "--save-every", "0", "--store-wait", "3600"};
  {
    Lock lock(f / "crest.db", whole_lock);
    RunOptions o = f.options();
    o.while_running = [](const RunningProcess& process) {
      process.wait_for_text("waiting up to");
      kill(process, SIGINT);
    };
    RunResult r = run_crest(endless_run, o);
    EXPECT_EQ(r.code, 130) << r.err;
    if (access("/proc/locks", R_OK) == 0) {
      EXPECT_NE(r.err.find(std::to_string(getpid())), std::string::npos) << "who is waited for: " << r.err;
    }
  }
  std::optional<Lock> lock;
  RunOptions o = f.options();
  o.while_running = [&](const RunningProcess& process) {
    f.wait_for_rows(process, "waits", 1);
    lock.emplace(f / "crest.db", writers_lock);
    size_t rows = f.log_rows("waits");
    f.wait_for_rows(process, "waits", rows + 20);  // it trains on
    kill(process, SIGINT);
  };
  auto again = endless_run;
  again.push_back("--overwrite");
  RunResult r = run_crest(again, o);
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_FALSE(f.checkpoints("waits").empty()) << "saved";
  EXPECT_EQ(count(r.err, "stopped recording"), 1u) << r.err;
}

TEST(DamagedRuns, AreToldInAListThatGoesOn) {
  TrainFolder f;
  for (const char* name : {"one", "two", "three"}) ASSERT_EQ(f.train(name, 2).code, 0);
  run_sql(f / "crest.db", "UPDATE runs SET recipe = '{' WHERE id = 2");
  RunResult table = run_crest({"runs", "list"}, f.options());
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(count(table.err, "warning: run 2 is damaged: recipe"), 1u) << table.err;
  EXPECT_EQ(count(table.out, "damaged"), 1u) << table.out;
  auto json = run_crest({"runs", "list", "--json"}, f.options()).json();
  ASSERT_EQ(json.size(), 3u);
  for (auto& r : json) EXPECT_EQ(r.contains("damaged"), r["id"] == 2) << r.dump();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"runs", "show", "2"},
                                                  {"compare", "2", "3"},
                                                  {"report", "1", "2", "-o", "page.html"},
                                                  {"report", "--all", "-o", "page.html"},
                                                  {"runs", "export", "--all", "-o", "runs.jsonl"}})
    expect_error(command, 1, {"run 2", "is damaged", "recipe"}, f.options());
  EXPECT_EQ(run_crest({"runs", "delete", "2", "--yes"}, f.options()).code, 0);
  EXPECT_EQ(run_crest({"runs", "list", "--json"}, f.options()).json().size(), 2u);
  RunResult again = f.resume("three", {"--steps", "4"});
  EXPECT_EQ(again.code, 0) << again.err;
}
