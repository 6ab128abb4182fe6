// The barrier for ranks that are threads of one process.
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

  // Returns after all ranks have called it. Throws PeerLost if one has left, now and in later
  // calls.
  void wait() {
    check();
    barrier_.arrive_and_wait();
    check();
  }
  // Called once by a rank that will not call wait() again.
  void leave() {
    left_ = true;
    barrier_.arrive_and_drop();
  }

 private:
  // After all have arrived, a rank may leave without an effect on this meeting.
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

// Rendezvous of groups of threads. The first member makes the group's rendezvous, and nobody waits.
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
