// Child processes: started with pipes, and read while they run.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace crest {

using Variable = std::pair<std::string, std::string>;

// A pipe that closes itself.
struct Pipe {
  int read = -1, write = -1;
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read();
  void close_write();
};

// A program could not be started. missing: there is no such program.
class CannotStart : public Error {
 public:
  CannotStart(std::string what, std::string where, bool missing)
      : Error(Exit::failed, std::move(what), std::move(where)), missing_(missing) {}
  bool missing() const { return missing_; }

 private:
  bool missing_;
};

// Starts a program of PATH, or a file, with arguments (the first is its name). `variables` override
// this process's own. Its standard input is /dev/null. It has its own process group, so a signal of
// the terminal does not reach it.
pid_t spawn_child(const std::string& program, std::vector<std::string> arguments,
                  const std::vector<Variable>& variables, const Pipe& out, const Pipe& err);

// The exit code of a status of waitpid: 128 + signal if a signal ended it, as shells report it.
int exit_code_of(int status);

// Reads the available bytes; false at the end of the stream. Keeps the last `keep` bytes.
bool drain(int fd, std::string& text, size_t keep);

// A program whose standard output is read while it runs. The destructor kills it.
class ChildStream {
 public:
  // Throws CannotStart.
  ChildStream(const std::string& program, const std::vector<std::string>& arguments);
  ~ChildStream();
  ChildStream(const ChildStream&) = delete;
  ChildStream& operator=(const ChildStream&) = delete;
  // Reads `bytes`; fewer only at the end of the output. While there are none, `waiting` is called
  // ten times a second; it may throw.
  size_t read(void* to, size_t bytes, const std::function<void()>& waiting);
  struct End {
    int exit_code;
    std::string err;  // the last 64 KiB of standard error
  };
  // Waits for its end. Call it after the end of the output.
  End wait();

 private:
  Pipe out_, err_;
  std::string messages_;
  pid_t pid_ = -1;
};

}  // namespace crest
