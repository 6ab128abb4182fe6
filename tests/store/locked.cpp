// A run database locked by another process: a
// short wait, and the message names the process.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/timer.h"
#include "host/stop_signal.h"
#include "store/files.h"
#include "store/recorder.h"
#include "wait.h"

namespace crest::test {

namespace {

// A process with a lock until the object goes away.
class Holder {
 public:
  Holder(const std::string& file, const std::string& sql) {
    int locked[2];
    EXPECT_EQ(pipe(locked), 0);
    pid_ = fork();
    if (pid_ == 0) {
      sqlite3* db = nullptr;
      bool good = sqlite3_open(file.c_str(), &db) == SQLITE_OK &&
                  sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
      if (!good || write(locked[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    close(locked[1]);
    EXPECT_EQ(read(locked[0], &byte, 1), 1) << "the lock was not taken";
    close(locked[0]);
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // As an error names it; nothing where the system does not tell who holds a lock.
  std::string pid() const { return access("/proc/locks", R_OK) == 0 ? std::to_string(pid_) : ""; }

 private:
  pid_t pid_ = 0;
};

constexpr const char* whole_lock = "PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE";
constexpr const char* writers_lock = "BEGIN IMMEDIATE";

std::string made_store(const Folder& folder) {
  Store store(folder / "runs.db");
  RunRecord r = bench_record("first");
  r.status = "done";
  store.add(r);
  return folder / "runs.db";
}

// The text of StoreBusy.
template <class Act>
std::string busy(Act act) {
  try {
    act();
  } catch (const StoreBusy& e) {
    return e.what();
  }
  ADD_FAILURE() << "not busy";
  return "";
}

}  // namespace

TEST(LockedStore, IsAnErrorThatNamesWhoHoldsIt) {
  Folder f;
  std::string file = made_store(f);
  Holder holder(file, whole_lock);
  for (auto mode : {Store::Mode::write, Store::Mode::read})
    expect_says(busy([&] { Store(file, mode, {.seconds = 0.05}); }),
                {"process ", holder.pid().c_str(), "keeps the run database locked", "runs.db", "--store"});
}

TEST(LockedStore, TellsOnceWhomItWaitsForAndGoesOnWhenItIsFree) {
  Folder f;
  std::string file = made_store(f);
  Holder holder(file, whole_lock);
  std::string pid = holder.pid(), told;
  int notices = 0;
  Patience patience;
  patience.seconds = longest_wait, patience.notice_after = 0;
  patience.notice = [&](const std::string& text) {
    told = text, ++notices;
    holder.end();  // the event at the end of the wait
  };
  Store store(file, Store::Mode::write, patience);
  EXPECT_EQ(store.list().size(), 1u);
  EXPECT_EQ(notices, 1);
  expect_says(told, {"runs.db", "locked", pid.c_str(), "240 s"});
}

TEST(LockedStore, AWriterWaitsForAWriterOnly) {
  Folder f;
  std::string file = made_store(f);
  Store store(file, Store::Mode::write, {.seconds = 0.05});
  Holder holder(file, writers_lock);
  EXPECT_EQ(store.list().size(), 1u) << "readers go on";
  RunRecord r = bench_record("second");
  busy([&] { store.begin(r); });
  holder.end();
  store.begin(r);
  EXPECT_EQ(store.list().size(), 2u);
}

TEST(LockedStore, ARequestToStopEndsTheWait) {
  Folder f;
  std::string file = made_store(f);
  Holder holder(file, whole_lock);
  StopSignal guard;
  Patience patience;
  patience.seconds = longest_wait, patience.notice_after = 0;
  patience.notice = [](const std::string&) { raise(SIGINT); };
  Timer timer;
  busy([&] { Store store(file, Store::Mode::write, patience); });
  EXPECT_LT(timer.seconds(), longest_wait / 2);
}

TEST(LockedStore, PatienceCanEndWhileItWaits) {
  Folder f;
  std::string file = made_store(f);
  Holder holder(file, whole_lock);
  std::atomic<bool> hurry = false;
  Patience patience;
  patience.changing = [&] { return hurry ? 0 : longest_wait; };
  patience.notice_after = 0;
  patience.notice = [&](const std::string&) { hurry = true; };
  busy([&] { Store store(file, Store::Mode::write, patience); });
}

TEST(LockedStore, ARecorderWarnsOnceAndGoesOn) {
  Folder f;
  std::string file = made_store(f), warnings;
  int count = 0;
  auto warn = [&](const std::string& text) { warnings += text + "\n", ++count; };
  Recorder recorder(file, warn, {.seconds = 0.05});
  RunRecord r = bench_record("recorded");
  recorder.begin(r);
  Holder holder(file, writers_lock);
  for (int i = 0; i < 3; ++i) recorder.add_samples(r, {{1, i, "", false}});
  recorder.finish(r);
  EXPECT_FALSE(recorder.on());
  EXPECT_EQ(count, 1) << warnings;
  expect_says(warnings, {"stopped recording", "locked"});
}

}  // namespace crest::test
