// Unwritable output and unreadable files, at every call of the real binary. It ends with one error,
// or without any; it never crashes, and earlier files stay intact.
#include "cli/system_faults.h"

using namespace crest::test;

namespace {

// CREST_SYSTEM_FAULTS=all: every call; otherwise a seeded choice of this many calls of each
// command.
std::vector<int64_t> points(int64_t calls, int64_t otherwise, uint64_t seed) {
  std::vector<int64_t> all;
  if (std::getenv("CREST_SYSTEM_FAULTS") || calls <= otherwise)
    for (int64_t k = 0; k < calls; ++k) all.push_back(k);
  else
    for (int64_t i = 0; i < otherwise; ++i)
      all.push_back(int64_t(crest::random_bits(seed, 0, uint64_t(i)) % uint64_t(calls)));
  return all;
}

bool is_write(const SystemCall& call, uint64_t fd) {
  return (call.number == SYS_write || call.number == SYS_writev) && call.argument[0] == fd;
}

size_t errors_of(const std::string& err) {
  size_t n = 0;
  for (size_t at = err.find("crest: error: "); at != std::string::npos; at = err.find("crest: error: ", at + 1)) ++n;
  return n;
}

const std::vector<std::string> start_of_training = {
    "train", "--data", "data", "--model",   "tiny.toml", "--batch",     "2",           "--steps",
    "2",     "--out",  "new",  "--threads", "1",         "--overwrite", "--val-every", "1"};

std::vector<std::vector<std::string>> short_commands() {
  return {start_of_training,
          {"eval", "--run", "run", "--data", "data", "--threads", "1"},
          {"runs", "list"},
          {"bench", "--model", "tiny.toml", "--samples", "1", "--warmup", "0", "--threads", "1", "--no-store"}};
}

}  // namespace

TEST(SystemFaults, StandardOutputFailingAtEveryWrite) {
  if (!tracing_problem().empty()) GTEST_SKIP() << tracing_problem();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  int faults = 0;
  for (auto command : short_commands()) {
    if (command[0] == "train" || command[0] == "eval") command.push_back("--json");
    SystemFault fault{[](const SystemCall& c) { return is_write(c, 1); }};
    int64_t calls = run_with_fault(command, fault, f.options()).calls;
    EXPECT_GT(calls, 0) << command[0];
    const bool all = std::getenv("CREST_SYSTEM_FAULTS");
    for (int64_t k : points(calls, 1, 31))
      for (int error : all ? std::vector<int>{ENOSPC, EIO} : std::vector<int>{command[0].size() % 2 ? ENOSPC : EIO}) {
        SCOPED_TRACE(testing::Message() << command[0] << ", write " << k << " of " << calls << ": " << strerror(error));
        fault.k = k, fault.error = error;
        FaultyRun r = run_with_fault(command, fault, f.options());
        EXPECT_TRUE(r.hit);
        EXPECT_EQ(r.code, 1) << r.err;
        EXPECT_EQ(errors_of(r.err), 1u) << r.err;
        EXPECT_NE(r.err.find("standard output could not be written"), std::string::npos) << r.err;
        if (command[0] == "train") {
          EXPECT_EQ(f.checkpoints("new").back(), "step-000002") << "what it did is done";
        }
        ++faults;
      }
  }
  std::printf("%d writes to standard output that failed\n", faults);
}

TEST(SystemFaults, StandardErrorFailingAtEveryWriteStopsNothing) {
  if (!tracing_problem().empty()) GTEST_SKIP() << tracing_problem();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  int faults = 0;
  for (auto& command : short_commands()) {
    SystemFault fault{[](const SystemCall& c) { return is_write(c, 2); }};
    FaultyRun whole = run_with_fault(command, fault, f.options());
    for (int64_t k : points(whole.calls, 2, 32)) {
      SCOPED_TRACE(testing::Message() << command[0] << ", write " << k << " of " << whole.calls);
      fault.k = k, fault.from_then_on = k % 2;
      fault.error = k % 3 ? EIO : ENOSPC;
      FaultyRun r = run_with_fault(command, fault, f.options());
      EXPECT_EQ(r.code, 0) << r.err;
      if (command[0] == "train") {
        EXPECT_EQ(f.checkpoints("new").back(), "step-000002");
      }
      if (command[0] == "runs") {
        EXPECT_EQ(r.out, whole.out);
      }
      ++faults;
    }
  }
  std::printf("%d writes to standard error that failed\n", faults);
}

TEST(SystemFaults, EveryOpenReadAndMappingOfAStart) {
  if (!tracing_problem().empty()) GTEST_SKIP() << tracing_problem();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2).code, 0);
  const std::string before = f.last_state("run");
  struct Kind {
    const char* name;
    std::vector<long> calls;
    int error;
  };
  const std::vector<Kind> kinds = {
      {"open", {SYS_open, SYS_openat}, EIO}, {"read", {SYS_read, SYS_pread64}, EIO}, {"mmap", {SYS_mmap}, ENOMEM}};
  int faults = 0, refused = 0;
  for (auto& command :
       {start_of_training, std::vector<std::string>{"eval", "--run", "run", "--data", "data", "--threads", "1"},
        std::vector<std::string>{"train", "--resume", "run", "--steps", "3"}})
    for (auto& kind : kinds) {
      // Only mappings of files: memory is the subject of OutOfMemory.
      SystemFault fault{[&](const SystemCall& c) {
        return std::find(kind.calls.begin(), kind.calls.end(), c.number) != kind.calls.end() &&
               (c.number != SYS_mmap || int(c.argument[4]) >= 0);
      }};
      bool resumes = command[1] == "--resume";
      auto run = [&] {
        if (resumes) {
          std::filesystem::remove_all(f.path() / "again");
          std::filesystem::copy(f.path() / "run", f.path() / "again", std::filesystem::copy_options::recursive);
        }
        auto words = command;
        if (resumes) words[2] = "again";
        return run_with_fault(words, fault, f.options());
      };
      int64_t calls = run().calls;
      EXPECT_TRUE(calls > 0 || kind.calls[0] == SYS_mmap) << kind.name;
      for (int64_t k : points(calls, 2, 33 + uint64_t(calls))) {
        SCOPED_TRACE(testing::Message() << command[0] << " " << command[1] << ", " << kind.name << " " << k << " of "
                                        << calls);
        fault.k = k, fault.error = kind.error;
        FaultyRun r = run();
        ++faults;
        if (r.code == 0) {  // the system's own files (/proc, /sys) are optional
          EXPECT_EQ(errors_of(r.err), 0u) << r.err;
          continue;
        }
        ++refused;
        EXPECT_TRUE(r.code >= 1 && r.code <= 4) << "exit code " << r.code << "\n" << r.err;
        EXPECT_EQ(errors_of(r.err), 1u) << r.err;
        EXPECT_EQ(f.last_state("run"), before);
        if (resumes) {
          EXPECT_GE(f.checkpoints("again").size(), 1u);
        }
      }
    }
  EXPECT_GT(refused, 0);
  RunResult after = f.resume("run", {"--steps", "3"});
  EXPECT_EQ(after.code, 0) << after.err;
  std::printf("%d calls of a start that failed, %d refused, 0 crashes\n", faults, refused);
}
