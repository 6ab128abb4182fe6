// Launches the instructions of a Program on concurrent streams, with the waits of its plan. Host
// code, always compiled: tests run it on simulated streams.
#pragma once
#include <array>
#include <vector>

#include "backend/runtime.h"

namespace crest::cuda {

// Streams and events, by number, with CUDA's meaning. An event may be recorded again: a wait is for
// the last record before the wait was queued.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual void record(int event, int stream) = 0;
  virtual void wait(int stream, int event) = 0;
};

// One run of a Program: begin(), then before(i), the launch of i and after(i) for every instruction
// in order, then end(). All work starts after stream 0's work at begin(), and stream 0's work after
// end() starts after all of it.
class StreamOrder {
 public:
  StreamOrder(const BoundProgram& program, Streams& streams);
  // Events are numbered from 0.
  int events() const { return events_; }
  void begin();
  void before(size_t i);
  // Whether the first kernel of i may begin while the one before it on its stream runs. The one
  // before must be a kernel of this Program: not a copy before the Program, not another stream's
  // event (unknown to a kernel's own wait), and not a collective, which puts more on a stream than
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
  // Streams tied to stream 0 by begin() and end(): the streams not tied by an instruction's wait.
  std::vector<int> forked_, joined_;
  std::array<bool, stream_count> kernel_ = {};  // streams ending with a kernel, so far
  std::vector<char> first_;                     // by instruction: whether its stream has no earlier one
  std::vector<int> event_;                      // by instruction: -1 when nobody waits for it
  int events_ = 0;
};

}  // namespace crest::cuda
