// data/'s needs of core/io.h: partial reads, streams, headers written last.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "core/io.h"
#include "data/fnv.h"
#include "data/helpers.h"
#include "wait.h"

using namespace crest;
using namespace crest::test;

TEST(DataFiles, PartialReadsStopAtTheEnd) {
  DataFolder dir;
  write_file(dir / "a", "0123456789");
  File f = File::open_read((dir / "a").string());
  std::string to(8, '.');
  EXPECT_EQ(f.read_some_at(to.data(), 8, 6), 4u);
  EXPECT_EQ(to, "6789....");
  EXPECT_EQ(f.read_some_at(to.data(), 8, 10), 0u);
  EXPECT_EQ(f.read_some_at(to.data(), 8, 1000), 0u);
  f.read_at(to.data(), 8, 2);
  EXPECT_EQ(to, "23456789");
  EXPECT_ERROR(f.read_at(to.data(), 8, 6), "ends at byte 10, 4 bytes short");
  EXPECT_EQ(f.read_some(to.data(), 6), 6u) << "pread does not move the place of read";
  EXPECT_EQ(f.read_some(to.data(), 6), 4u);
  EXPECT_EQ(f.read_some(to.data(), 6), 0u);
}

TEST(DataFiles, AHeaderCanBeWrittenLast) {
  DataFolder dir;
  File f = File::create((dir / "a").string());
  f.write("....data");
  f.seek(0);
  f.write("head");
  f.sync();
  f.close();
  EXPECT_EQ(read_file(dir / "a"), "headdata");
}

TEST(DataFiles, ADuplicateLeavesTheDescriptorOpen) {
  DataFolder dir;
  write_file(dir / "a", "abcdef");
  int fd = ::open((dir / "a").c_str(), O_RDONLY);
  char c = 0;
  {
    File f = File::duplicate(fd, "standard input");
    EXPECT_EQ(f.path(), "standard input");
    EXPECT_EQ(f.read_some(&c, 1), 1u);
    EXPECT_EQ(c, 'a');
  }
  EXPECT_EQ(::read(fd, &c, 1), 1);
  EXPECT_EQ(c, 'b');
  ::close(fd);
  EXPECT_ERROR(File::duplicate(fd, "standard input"), "standard input: cannot open: Bad file descriptor");
}

TEST(DataFiles, APipeIsReadToItsEndAndRefusedWhereAFileIsNeeded) {
  DataFolder dir;
  std::string pipe = (dir / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(File::open_read(pipe), "not a regular file");
  EXPECT_ERROR(File::open_stream(dir.path().string()), "is a folder");
  EXPECT_ERROR(File::open_stream((dir / "absent").string()), "cannot open: No such file");
  std::thread writer([&] {
    int fd = ::open(pipe.c_str(), O_WRONLY);
    for (const char* part : {"one ", "two ", "three"}) {
      EXPECT_GT(::write(fd, part, strlen(part)), 0);
      int unread = 1;
      EXPECT_TRUE(crest::test::wait_until([&] { return ::ioctl(fd, FIONREAD, &unread) == 0 && unread == 0; }));
    }
    ::close(fd);
  });
  std::string to(100, '.');
  size_t n = File::open_stream(pipe).read_some(to.data(), to.size());
  writer.join();
  EXPECT_EQ(to.substr(0, n), "one two three") << "several reads, one call";
}

// Test vectors of the authors (isthe.com/chongo/tech/comp/fnv).
TEST(Fnv, KnownHashes) {
  auto hash = [](std::string_view text) {
    Fnv64 h;
    for (char c : text) h.update({&c, 1});
    return h.hex();
  };
  EXPECT_EQ(hash(""), "cbf29ce484222325");
  EXPECT_EQ(hash("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(hash("foobar"), "85944171f73967e8");
}
