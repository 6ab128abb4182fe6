// Several processes on one run database, and silently ended processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/process.h"
#include "store/files.h"

namespace crest::test {

// Runs `act` in another process; its exit code is 0 when nothing was thrown.
template <class Act>
static pid_t start(Act act) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    act();
    _exit(0);
  } catch (const std::exception& e) {
    fprintf(stderr, "process %d: %s\n", int(getpid()), e.what());
    _exit(1);
  }
}

static int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StoreProcesses, WriteAtOnceAndLoseNothing) {
  Folder folder;
  std::string file = folder / "runs.db";  // made by whoever comes first
  constexpr int processes = 6, writes = 60;
  std::vector<pid_t> pids;
  for (int p = 0; p < processes; ++p)
    pids.push_back(start([&] {
      Store store(file);
      RunRecord r = bench_record("process " + std::to_string(p));
      store.begin(r);
      for (int i = 0; i < writes; ++i) {
        LogRow row;
        row.step = i, row.loss = p;
        store.add_log(r.id, {row});
        store.add_samples(r.id, {{double(p), i, "a", false}, {double(p), i, "b", false}});
        if (i % 20 == 0) store.list();
      }
      store.set_document(r.id, "plan", {{"process", p}});
      r.status = "done";
      store.finish(r.id, r);
    }));
  for (pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
  Store store(file, Store::Mode::read);
  auto runs = store.list();
  ASSERT_EQ(runs.size(), size_t(processes));
  for (auto& listed : runs) {
    RunRecord r = store.load(listed.id);
    int p = r.documents.at("plan")["process"].get<int>();
    EXPECT_EQ(r.name, "process " + std::to_string(p));
    EXPECT_EQ(r.status, "done");
    ASSERT_EQ(r.log.size(), size_t(writes));
    ASSERT_EQ(r.samples.size(), size_t(2 * writes));
    for (int i = 0; i < writes; ++i) {
      EXPECT_EQ(r.log[size_t(i)].step, i);
      EXPECT_EQ(r.log[size_t(i)].loss, p);
      EXPECT_EQ(r.samples[size_t(2 * i)].ms, p);
    }
  }
}

TEST(StoreProcesses, AKilledOneLosesOnlyItsEnd) {
  Folder folder;
  std::string file = folder / "runs.db";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t pid = start([&] {
    Store store(file);
    RunRecord r = bench_record("killed");
    store.begin(r);
    for (int i = 0;; ++i) {
      LogRow row;
      row.step = i;
      store.add_log(r.id, {row});
      store.add_samples(r.id, {{1.0, i, "", false}});
      if (i == 20 && write(ready[1], "x", 1) != 1) _exit(1);
    }
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  Store store(file);
  EXPECT_EQ(store.list().at(0).status, "running");
  EXPECT_EQ(store.list({.status = "running"}).size(), 1u);
  EXPECT_EQ(store.list({.status = "lost"}).size(), 0u);
  kill(pid, SIGKILL);
  EXPECT_EQ(wait_for(pid), 128 + SIGKILL);
  RunRecord r = store.load(store.find("killed"));
  EXPECT_EQ(r.status, "lost");
  EXPECT_GE(r.log.size(), 21u);
  EXPECT_GE(r.samples.size(), 21u);
  for (size_t i = 0; i < r.log.size(); ++i) EXPECT_EQ(r.log[i].step, int64_t(i));
  EXPECT_EQ(store.list({.status = "lost"}).size(), 1u);
  EXPECT_EQ(store.list({.status = "running"}).size(), 0u);
  RunRecord next = bench_record("next");
  store.begin(next);  // the database works on
  EXPECT_EQ(store.list({.status = "running"}).size(), 1u) << "this process lives";
  close(ready[0]), close(ready[1]);
}

TEST(StoreProcesses, AZombieIsGone) {
  pid_t pid = start([] {});
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT), 0);  // ended, but not collected
  ProcessId p = this_process();
  p.pid = pid;
  EXPECT_EQ(life_of(p), Life::gone);
  wait_for(pid);
}

TEST(StoreProcesses, AReusedNumberIsAnotherProcess) {
  ProcessId me = this_process();
  EXPECT_EQ(life_of(me), Life::alive);
  ProcessId earlier = me;
  earlier.started -= 1;
  EXPECT_EQ(life_of(earlier), Life::gone);
  ProcessId before_reboot = me;
  before_reboot.boot = "00000000-0000-0000-0000-000000000000";
  EXPECT_EQ(life_of(before_reboot), Life::gone);
  for (auto ProcessId::*part : {&ProcessId::host, &ProcessId::space}) {
    ProcessId other = me;
    other.*part = "another";
    EXPECT_EQ(life_of(other), Life::elsewhere) << "its numbers mean nothing here";
  }
}

TEST(StoreProcesses, ARunOfAReusedNumberIsLost) {
  Folder folder;
  std::string file = folder / "runs.db";
  Store store(file);
  RunRecord r = bench_record("mine");
  store.begin(r);
  EXPECT_EQ(store.load(r.id).status, "running");
  raw_sql(file, "UPDATE runs SET pid_started = pid_started - 1");
  EXPECT_EQ(store.load(r.id).status, "lost");
  raw_sql(file, "UPDATE runs SET host = 'elsewhere'");
  EXPECT_EQ(store.load(r.id).status, "running") << "cannot be told from here";
}

}  // namespace crest::test
