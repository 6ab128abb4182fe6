// The meeting point of ranks that are threads of one process.
#pragma once
#include <atomic>
#include <barrier>

#include "comm/comm.h"

namespace crest {

// All ranks call wait() equally often, until one calls leave().
class ThreadBarrier {
 public:
  explicit ThreadBarrier(int ranks) : barrier_(ranks, Meeting{this}) {}

  // Returns after all ranks have called it. Throws PeerLost if one left instead, and ever after.
  void wait() {
    check();
    barrier_.arrive_and_wait();
    check();
  }
  // Once a rank, which does not call wait() any more.
  void leave() {
    left_ = true;
    barrier_.arrive_and_drop();
  }

 private:
  // When all have arrived: a rank that leaves later does not spoil this meeting.
  struct Meeting {
    ThreadBarrier* self;
    void operator()() noexcept { self->broken_ = self->left_.load(); }
  };
  void check() const {
    if (broken_) throw PeerLost(-1, "another rank of this process has failed", "ranks");
  }
  std::atomic<bool> left_ = false, broken_ = false;
  std::barrier<Meeting> barrier_;
};

}  // namespace crest
