// Runs crest in a terminal of its own, as a person types.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "core/timer.h"
#include "crest_binary.h"

namespace crest::test {

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments, const std::string& folder) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_TRUE(master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0);
    const std::string name = ptsname(master_);
    std::vector<char*> argv = {const_cast<char*>(crest_binary())};
    for (auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    setsid();
    const int terminal = open(name.c_str(), O_RDWR);
    ioctl(terminal, TIOCSCTTY, 0);
    for (int fd : {0, 1, 2}) dup2(terminal, fd);
    setenv("CREST_CACHE", (folder + "/cache").c_str(), 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    if (chdir(folder.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(master_);
  }

  // "\x03" is Ctrl-C, "\x04" Ctrl-D.
  void type(const std::string& keys) { EXPECT_EQ(write(master_, keys.data(), keys.size()), ssize_t(keys.size())); }

  // Waits until this text is on the screen, behind the texts seen before. Returns what came before
  // it.
  std::string see(const std::string& text) {
    Timer timer;
    for (;;) {
      if (size_t at = screen_.find(text); at != std::string::npos) {
        const std::string before = screen_.substr(0, at);
        screen_.erase(0, at + text.size());
        return before;
      }
      if (timer.seconds() > 60 || !read_more()) break;
    }
    ADD_FAILURE() << "'" << text << "' is not on the screen:\n" << screen_;
    return "";
  }
  // The exit code; 128 + signal if one ended it.
  int end() {
    while (read_more()) continue;
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // What is left on the screen.
  const std::string& rest() const { return screen_; }

 private:
  // False at the end of the process, or after a minute of silence.
  bool read_more() {
    pollfd p = {master_, POLLIN, 0};
    char buffer[4096];
    if (poll(&p, 1, 60'000) <= 0) return false;
    const ssize_t n = read(master_, buffer, sizeof buffer);
    if (n > 0) screen_.append(buffer, size_t(n));
    return n > 0;
  }

  int master_ = -1;
  pid_t pid_ = 0;
  std::string screen_;
};

}  // namespace crest::test
