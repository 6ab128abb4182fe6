// Who holds a lock, by its number and name; nobody where there is none.
#include "host/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/temporary_folder.h"

namespace crest::test {

TEST(FileLock, NamesTheProcessThatHoldsIt) {
  if (access("/proc/locks", R_OK) != 0) GTEST_SKIP() << "there is no /proc/locks";
  TemporaryFolder folder;
  std::string file = folder / "file";
  int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(lock_holder({file}), "");
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  pid_t pid = fork();
  if (pid == 0) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    if (fcntl(fd, F_SETLK, &whole) != 0 || write(locked[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  std::string holder = lock_holder({folder / "other", file});
  EXPECT_EQ(holder.find("process " + std::to_string(pid) + " (test_host)"), 0u) << holder;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(lock_holder({file}), "");
  struct flock own {};
  own.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fd, F_SETLK, &own), 0);
  EXPECT_EQ(lock_holder({file}), "") << "this process does not wait for itself";
  close(fd), close(locked[0]), close(locked[1]);
}

}  // namespace crest::test
