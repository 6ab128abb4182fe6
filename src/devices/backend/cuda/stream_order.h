// Launches the instructions of a Program on streams that run concurrently, with the waits that its
// plan requires. Host code, always compiled: tests run it on simulated streams.
#pragma once
#include <array>
#include <vector>

#include "backend/runtime.h"

namespace crest::cuda {

// Streams and events, by number, with the meaning that CUDA gives them. An event may be recorded
// again: a wait is for what was recorded last when it was queued.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual void record(int event, int stream) = 0;
  virtual void wait(int stream, int event) = 0;
};

// One run of a Program: begin(), then before(i), the launch of i and after(i) for every instruction
// in order, then end(). All work starts after what stream 0 held at begin(), and what stream 0 gets
// after end() starts after all work.
class StreamOrder {
 public:
  StreamOrder(const BoundProgram& program, Streams& streams);
  // Events are numbered from 0.
  int events() const { return events_; }
  void begin();
  void before(size_t i);
  // Whether the first kernel of i may begin while the one before it on its stream runs. That one is
  // a kernel of this Program: not a copy before the Program, not another stream's event, which a
  // kernel's own wait does not know of, and not a collective, which puts more on a stream than
  // kernels.
  bool follows_kernel(size_t i) const;
  void after(size_t i);
  void end();
  // Whether i waits for another stream, or is the first one on its own.
  bool waits(size_t i) const { return first_[i] || !waits_of(i).empty(); }

 private:
  const std::vector<int>& waits_of(size_t i) const;
  size_t stream(size_t i) const { return size_t(program_.program->code[i].stream); }

  const BoundProgram& program_;
  Streams& streams_;
  // Streams that begin() and end() tie to stream 0: those that no instruction's wait ties to it.
  std::vector<int> forked_, joined_;
  std::array<bool, stream_count> kernel_ = {};  // streams that end with a kernel, so far
  std::vector<char> first_;                     // by instruction: whether its stream has no earlier one
  std::vector<int> event_;                      // by instruction: -1 when nobody waits for it
  int events_ = 0;
};

}  // namespace crest::cuda
