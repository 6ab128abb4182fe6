// Every modifying system call of a preparation fails once, or fails from then on. The result is a
// clear error. Under the name of the output there is nothing, the old data or the new data, never a
// part.
#include "checkpoint/faults.h"

#include <omp.h>
#include <sys/wait.h>

#include <cstring>

#include "core/folder.h"
#include "data/helpers.h"
#include "data/prepare.h"

using namespace crest;
using namespace crest::test;
using crest::test::Fault;
using crest::test::Faults;
namespace fs = std::filesystem;

namespace {

std::string sentences(size_t n) {
  std::string s;
  while (s.size() < n) s += "the cat sat on the mat and 12 dogs did not. ";
  return s;
}

PrepareOptions tiny(const fs::path& input, const fs::path& out, bool overwrite) {
  PrepareOptions o;
  o.inputs = {input};
  o.out = out;
  o.overwrite = overwrite;
  o.shard_tokens = 1500;  // several shards
  return o;
}

// A preparation over nothing, or over older data.
struct Scenario {
  bool overwrite;
  Fault fault;
  int error;
  bool can_exchange = true;  // the file system
};

std::ostream& operator<<(std::ostream& out, const Scenario& s) {
  return out << (s.overwrite ? "over old data, " : "") << (s.fault == Fault::fail_once ? "once, " : "from then on, ")
             << std::strerror(s.error) << (s.can_exchange ? "" : ", names are not exchanged");
}

class PrepareFaults : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    write_file(dir_ / "old.txt", sentences(1000));
    write_file(dir_ / "new.txt", sentences(4000));
  }
  void start_over() {
    fs::remove_all(dir_ / "work");
    if (GetParam().overwrite) prepare(tiny(dir_ / "old.txt", out(), false));
  }
  fs::path out() const { return fs::path(dir_ / "work") / "out"; }
  void run() { prepare(tiny(dir_ / "new.txt", out(), GetParam().overwrite)); }
  // 0: no data; otherwise the bytes of text of the complete data set (opening checks every shard).
  uint64_t there() const { return fs::exists(out()) ? Dataset::open(out()).info().text_bytes : 0; }

  DataFolder dir_;
};

}  // namespace

TEST_P(PrepareFaults, EveryKthCall) {
  Scenario s = GetParam();
  start_over();
  int64_t calls;
  {
    Faults counting;
    counting.can_exchange = s.can_exchange;
    run();
    calls = counting.calls();
  }
  uint64_t before = s.overwrite ? 1012 : 0, after = 4004;
  ASSERT_EQ(there(), after);
  ASSERT_GT(calls, 30);
  int failed = 0;
  for (int64_t k = 0; k < calls; ++k) {
    start_over();
    ASSERT_EQ(there(), before);
    std::string message, hit;
    {
      Faults faults(s.fault, k, s.error);
      faults.can_exchange = s.can_exchange;
      try {
        run();
      } catch (const Error& e) {
        message = e.what();
      }
      hit = faults.hit();
    }
    SCOPED_TRACE(::testing::Message() << "call " << k << " of " << calls << " (" << hit << "): " << message);
    if (message.empty()) {  // closing read files, removing unneeded ones, asking for free space
      EXPECT_TRUE(hit == "close" || hit == "open" || hit == "unlink" || hit == "rmdir" || hit == "statvfs");
      ASSERT_EQ(there(), after);
      continue;
    }
    ++failed;
    EXPECT_NE(message.find(std::strerror(s.error)), std::string::npos);
    EXPECT_NE(message.find(dir_.path().string()), std::string::npos) << "the error names no path";
    if (s.fault == Fault::fail_once) {
      // After the rename only the sync of the parent folder can fail. Then the new data is in
      // place.
      uint64_t found = there();
      EXPECT_TRUE(found == before || found == after) << found;
      size_t left = 0;
      std::error_code absent;  // the folder itself could not be made
      for (auto& entry : fs::directory_iterator(dir_ / "work", absent)) left += entry.path().filename() != "out";
      // The failing call may be the removal itself.
      if (found == before && hit != "unlink" && hit != "rmdir") {
        EXPECT_EQ(left, 0u) << "a temporary folder stays";
      }
    } else if (fs::exists(out())) {
      uint64_t found = there();
      EXPECT_TRUE(found == before || found == after) << found;
    } else if (s.overwrite) {
      // If even moving the data back fails, the message names the place of the old data.
      fs::path old;
      for (auto& entry : fs::directory_iterator(dir_ / "work"))
        if (entry.path().string().ends_with("-old")) old = entry.path();
      EXPECT_NE(message.find(old.string()), std::string::npos);
      EXPECT_EQ(Dataset::open(old).info().text_bytes, before);
    }
  }
  EXPECT_GT(failed, 25);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, PrepareFaults,
    ::testing::Values(Scenario{false, Fault::fail_once, ENOSPC}, Scenario{false, Fault::fail_from, EIO},
                      Scenario{true, Fault::fail_once, EIO}, Scenario{true, Fault::fail_from, ENOSPC},
                      Scenario{true, Fault::fail_once, EIO, false}, Scenario{true, Fault::fail_from, ENOSPC, false}));

namespace {

// Both kinds of file systems: with and without an exchange of two names in one step.
class PrepareKilled : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t before = 1012, after = 4004;
  void SetUp() override {
    write_file(dir_ / "old.txt", sentences(1000));
    write_file(dir_ / "new.txt", sentences(4000));
    prepare(tiny(dir_ / "old.txt", dir_ / "old", false));
  }
  fs::path out() const { return fs::path(dir_ / "work") / "out"; }
  uint64_t opened() const { return Dataset::open(out()).info().text_bytes; }
  void start_over() {
    fs::remove_all(dir_ / "work");
    fs::create_directory(dir_ / "work");
    fs::copy(dir_ / "old", out());
  }
  int64_t calls() {
    start_over();
    Faults counting;
    counting.can_exchange = GetParam();
    prepare(tiny(dir_ / "new.txt", out(), true));
    return counting.calls();
  }
  // A process replacing the data and dying at call `k`.
  void kill_at(int64_t k) {
    start_over();
    pid_t child = ::fork();
    if (child == 0) {
      omp_set_num_threads(1);  // the parent's are not here
      Faults faults(Fault::kill, k);
      faults.can_exchange = GetParam();
      prepare(tiny(dir_ / "new.txt", out(), true));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 99) << "the fault did not happen";
  }
  size_t beside() const {
    size_t left = 0;
    for (auto& entry : fs::directory_iterator(dir_ / "work")) left += entry.path().filename() != "out";
    return left;
  }
  TemporaryFolder dir_;
};

}  // namespace

// At every moment the old or the new data has the name, or the next command puts the old data back.
TEST_P(PrepareKilled, AtEveryCallLeavesTheOldOrTheNewData) {
  int64_t all = calls();
  ASSERT_GT(all, 30);
  int old_found = 0, new_found = 0, put_back = 0;
  for (int64_t k = 0; k < all; ++k) {
    SCOPED_TRACE(::testing::Message() << "killed at call " << k << " of " << all);
    kill_at(k);
    bool there = fs::exists(out());
    if (GetParam()) {
      EXPECT_TRUE(there) << "nothing under the name";
    }
    put_back += !there;
    uint64_t found = opened();
    EXPECT_TRUE(found == before || found == after) << found;
    (found == after ? new_found : old_found)++;
    if (k % 4) continue;
    // The next preparation is not blocked, and clears the killed one's remains.
    prepare(tiny(dir_ / "new.txt", out(), true));
    EXPECT_EQ(opened(), after);
    EXPECT_EQ(beside(), 0u);
  }
  EXPECT_GT(old_found, 20);
  EXPECT_GT(new_found, 3);
  EXPECT_EQ(put_back, GetParam() ? 0 : 1);  // killed before the second rename
}

// Opening is not the only way to find it: a preparation without --overwrite does not take the free
// name.
TEST_P(PrepareKilled, IsPutBackByTheNextPreparationToo) {
  int64_t all = calls();
  bool gone = false;
  for (int64_t k = all - 1; !gone && k > all - 20; --k) {
    kill_at(k);
    gone = !fs::exists(out());
    EXPECT_ERROR(prepare(tiny(dir_ / "new.txt", out(), false)), "the output folder exists");
    EXPECT_EQ(opened(), gone ? before : after);
    if (GetParam()) break;
  }
  EXPECT_NE(gone, GetParam());
}

INSTANTIATE_TEST_SUITE_P(FileSystems, PrepareKilled, ::testing::Bool(),
                         [](auto& i) { return i.param ? "ThatExchangeNames" : "ThatDoNot"; });

// Data set aside by a living process stays there. The error names its place.
TEST(PrepareReplacing, OfALivingProcessIsLeftAlone) {
  TemporaryFolder dir;
  write_file(dir / "in.txt", sentences(1000));
  prepare(tiny(dir / "in.txt", dir / "out", false));
  std::string aside = ".out.preparing-999999999-old";
  fs::rename(dir / "out", dir / aside);
  Folder other = Folder::open(dir / aside);
  ASSERT_EQ(other.lock(), Folder::Lock::held);
  EXPECT_ERROR(Dataset::open(dir / "out"), aside);
  EXPECT_TRUE(fs::exists(dir / aside));
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(PrepareShortWrites, AreContinued) {
  DataFolder dir;
  write_file(dir / "in.txt", sentences(4000));
  prepare(tiny(dir / "in.txt", dir / "whole", false));
  int64_t calls;
  {
    Faults counting;
    prepare(tiny(dir / "in.txt", dir / "count", false));
    calls = counting.calls();
  }
  for (int64_t k = 0; k < calls; ++k) {
    Faults faults(Fault::short_write, k);
    prepare(tiny(dir / "in.txt", dir / "short", true));
    for (const char* name : {"train-000000.bin", "train-000001.bin", "val-000000.bin", "tokenizer.json"})
      ASSERT_EQ(read_file(dir / "short" / name), read_file(dir / "whole" / name)) << "call " << k;
  }
}

TEST(PrepareFreeSpace, IsCheckedBefore) {
  DataFolder dir;
  write_file(dir / "in.txt", sentences(4000));
  Faults faults;
  faults.free_bytes = 100;
  EXPECT_ERROR(prepare(tiny(dir / "in.txt", dir / "out", false)), "the disk has 100 B free");
  EXPECT_ERROR(prepare(tiny(dir / "in.txt", dir / "out", false)), "or choose an --out on another disk");
  EXPECT_FALSE(fs::exists(dir / "out"));
  EXPECT_ERROR(prepare_cached(dir / "in.txt", dir / "cache", "bytes"), "or set CREST_CACHE to");
}
