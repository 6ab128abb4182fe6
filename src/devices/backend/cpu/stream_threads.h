// The streams of a Program on a CPU: the compute stream is the calling thread; every other stream
// is a thread with the lifetime of this object.
#pragma once
#include <array>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "core/thread.h"
#include "program/waits.h"

namespace crest::cpu {

class StreamThreads {
 public:
  StreamThreads() = default;
  ~StreamThreads();
  StreamThreads(const StreamThreads&) = delete;

  // Calls work(i) for every instruction: in the order of its stream, and after the instructions it
  // waits for. Returns when all have ended: the seconds that the compute stream waited for others.
  // After an error no further instruction starts, and the first error is thrown.
  double run(const Program& program, const Waits& waits, const std::function<void(size_t)>& work);

 private:
  struct Job {
    const Program* program;
    const Waits* waits;
    const std::function<void(size_t)>* work;
    std::vector<bool> awaited;            // by instruction: whether another waits for it
    std::array<int, stream_count> ended;  // by stream: its last ended instruction, -1 for none
    int working = 0;                      // unfinished streams
    std::exception_ptr error;
  };

  double work_on(Stream stream);  // the seconds it waited
  void serve(Stream stream);
  void fail(Stream stream, const std::exception_ptr& error);

  std::mutex mutex_;
  std::condition_variable changed_;
  Job job_ = {};
  std::array<bool, stream_count> wanted_ = {};  // by stream: it has work for its thread
  bool over_ = false;
  std::array<Thread, stream_count> threads_;
};

}  // namespace crest::cpu
