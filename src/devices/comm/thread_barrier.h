// The meeting point of ranks that are threads of one process.
#pragma once
#include <atomic>
#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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

// Where groups of ranks that are threads meet: the first member makes the rendezvous of a group,
// and nobody waits.
template <class Rendezvous>
class ThreadGroups {
 public:
  // number: of the calling rank's earlier calls.
  std::shared_ptr<Rendezvous> join(int number, const std::vector<int>& members) {
    std::lock_guard lock(mutex_);
    auto& group = groups_[{number, members}];
    if (!group) group = std::make_shared<Rendezvous>(int(members.size()));
    return group;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, std::vector<int>>, std::shared_ptr<Rendezvous>> groups_;
};

}  // namespace crest
