#include "host/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "core/text.h"

extern char** environ;

namespace crest {

static constexpr size_t kept_messages = 64 << 10;

Pipe::Pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)), "external command");
  read = fds[0], write = fds[1];
}

Pipe::~Pipe() { close_read(), close_write(); }

void Pipe::close_read() {
  if (read >= 0) close(std::exchange(read, -1));
}

void Pipe::close_write() {
  if (write >= 0) close(std::exchange(write, -1));
}

bool drain(int fd, std::string& text, size_t keep) {
  char buffer[65536];
  ssize_t n = read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  text.append(buffer, size_t(n));
  if (text.size() > 2 * keep) text.erase(0, text.size() - keep);
  return true;
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// "NAME=value" for all variables; the given ones override this process's own.
static std::vector<std::string> environment_with(const std::vector<Variable>& variables) {
  std::map<std::string, std::string> all;
  for (char** v = environ; *v; ++v)
    if (const char* equals = std::strchr(*v, '=')) all[std::string(*v, size_t(equals - *v))] = equals + 1;
  for (auto& [name, value] : variables) all[name] = value;
  std::vector<std::string> lines;
  for (auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

static std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& t : texts) list.push_back(t.data());
  list.push_back(nullptr);
  return list;
}

pid_t spawn_child(const std::string& program, std::vector<std::string> arguments,
                  const std::vector<Variable>& variables, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> lines = environment_with(variables);
  pid_t pid = -1;
  int rc =
      posix_spawnp(&pid, program.c_str(), &actions, &attributes, pointers(arguments).data(), pointers(lines).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (rc != 0)
    throw CannotStart(fmt::format("cannot start {}: {}", printable(program), std::strerror(rc)), arguments.back(),
                      rc == ENOENT);
  return pid;
}

ChildStream::ChildStream(const std::string& program, const std::vector<std::string>& arguments) {
  pid_ = spawn_child(program, arguments, {}, out_, err_);
  out_.close_write(), err_.close_write();
}

ChildStream::~ChildStream() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

size_t ChildStream::read(void* to, size_t bytes, const std::function<void()>& waiting) {
  size_t done = 0;
  while (done < bytes && out_.read >= 0) {
    pollfd fds[] = {{out_.read, POLLIN, 0}, {err_.read, POLLIN, 0}};
    if (poll(fds, 2, 100) <= 0) {
      if (waiting) waiting();
      continue;
    }
    if (fds[1].revents && !drain(err_.read, messages_, kept_messages)) err_.close_read();
    if (!fds[0].revents) continue;
    const ssize_t n = ::read(out_.read, static_cast<char*>(to) + done, bytes - done);
    if (n > 0) done += size_t(n);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) out_.close_read();
  }
  return done;
}

ChildStream::End ChildStream::wait() {
  out_.close_read();
  while (err_.read >= 0 && drain(err_.read, messages_, kept_messages)) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {exit_code_of(status), messages_};
}

}  // namespace crest
