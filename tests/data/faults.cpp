// Every system call of a preparation that changes the file system fails once, or fails from then on: a clear error, and
// under the name of the result there is nothing, the old data or the new data, never a part.
#include "checkpoint/faults.h"

#include <cstring>

#include "data/helpers.h"
#include "data/prepare.h"

using namespace crest;
using namespace crest::test;
using crest::testing::Fault;
using crest::testing::Faults;
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
};

std::ostream& operator<<(std::ostream& out, const Scenario& s) {
  return out << (s.overwrite ? "over old data, " : "") << (s.fault == Fault::fail_once ? "once, " : "from then on, ")
             << std::strerror(s.error);
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
  fs::path out() const { return dir_ / "work" / "out"; }
  void run() { prepare(tiny(dir_ / "new.txt", out(), GetParam().overwrite)); }
  // 0: nothing there; otherwise the bytes of text of the whole data set that is there (opening checks every shard).
  uint64_t there() const { return fs::exists(out()) ? Dataset::open(out()).info().text_bytes : 0; }

  TemporaryFolder dir_;
};

}  // namespace

TEST_P(PrepareFaults, EveryKthCall) {
  Scenario s = GetParam();
  start_over();
  int64_t calls;
  {
    Faults counting;
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
      try {
        run();
      } catch (const Error& e) {
        message = e.what();
      }
      hit = faults.hit();
    }
    SCOPED_TRACE(::testing::Message() << "call " << k << " of " << calls << " (" << hit << "): " << message);
    if (message.empty()) {  // closing what was read, removing what is not needed any more, asking for free space
      EXPECT_TRUE(hit == "close" || hit == "unlink" || hit == "rmdir" || hit == "statvfs");
      ASSERT_EQ(there(), after);
      continue;
    }
    ++failed;
    EXPECT_NE(message.find(std::strerror(s.error)), std::string::npos);
    EXPECT_NE(message.find(dir_.path().string()), std::string::npos) << "the error names no path";
    if (s.fault == Fault::fail_once) {
      // After the rename only the sync of the parent can fail: then the new data is there.
      uint64_t found = there();
      EXPECT_TRUE(found == before || found == after) << found;
      size_t left = 0;
      std::error_code absent;  // the folder itself could not be made
      for (auto& entry : fs::directory_iterator(dir_ / "work", absent)) left += entry.path().filename() != "out";
      // One call that fails may be the removal itself.
      if (found == before && hit != "unlink" && hit != "rmdir") {
        EXPECT_EQ(left, 0u) << "a temporary folder stays";
      }
    } else if (fs::exists(out())) {
      uint64_t found = there();
      EXPECT_TRUE(found == before || found == after) << found;
    } else if (s.overwrite) {
      // Not even moving back worked: the message says where the old data is.
      fs::path old;
      for (auto& entry : fs::directory_iterator(dir_ / "work"))
        if (entry.path().string().ends_with("-old")) old = entry.path();
      EXPECT_NE(message.find(old.string()), std::string::npos);
      EXPECT_EQ(Dataset::open(old).info().text_bytes, before);
    }
  }
  EXPECT_GT(failed, 25);
}

INSTANTIATE_TEST_SUITE_P(Calls, PrepareFaults,
                         ::testing::Values(Scenario{false, Fault::fail_once, ENOSPC},
                                           Scenario{false, Fault::fail_from, EIO},
                                           Scenario{true, Fault::fail_once, EIO},
                                           Scenario{true, Fault::fail_from, ENOSPC}));

TEST(PrepareShortWrites, AreContinued) {
  TemporaryFolder dir;
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
  TemporaryFolder dir;
  write_file(dir / "in.txt", sentences(4000));
  Faults faults;
  faults.free_bytes = 100;
  EXPECT_ERROR(prepare(tiny(dir / "in.txt", dir / "out", false)), "the disk has 100 B free");
  EXPECT_FALSE(fs::exists(dir / "out"));
}
