// Memory passed between ranks as threads of one process.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "comm/comm.h"

namespace crest {

class ThreadTransfers {
 public:
  // Shows data to rank `to`, waits until it has taken it, and calls after().
  void send(int from, int to, const void* data, int64_t bytes, const std::function<void()>& after = {}) {
    std::unique_lock lock(mutex_);
    Place& place = places_[{from, to}];
    await(lock, [&] { return place.state == State::free; });
    place = {State::shown, data, bytes};
    changed_.notify_all();
    await(lock, [&] { return place.state == State::taken; });
    if (after) after();
    place.state = State::free;
    changed_.notify_all();
  }

  // take: gets the data of rank `from`. Returns after the sender has called after().
  void receive(int from, int to, int64_t bytes, const std::function<void(const void*)>& take) {
    std::unique_lock lock(mutex_);
    Place& place = places_[{from, to}];
    await(lock, [&] { return place.state == State::shown; });
    if (place.bytes != bytes) fail_internal("two ranks pass different numbers of bytes");
    lock.unlock();
    take(place.data);
    lock.lock();
    place.state = State::taken;
    changed_.notify_all();
    await(lock, [&] { return place.state != State::taken; });
  }

  // A rank has failed: waiting calls throw PeerLost, and so do all later ones.
  void leave() {
    std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  enum class State : uint8_t { free, shown, taken };
  struct Place {
    State state = State::free;
    const void* data = nullptr;
    int64_t bytes = 0;
  };

  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, Done done) {
    changed_.wait(lock, [&] { return left_ || done(); });
    if (!done()) throw PeerLost(-1, "another rank of this process has failed", "ranks");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Place> places_;  // by sender and receiver
  bool left_ = false;
};

}  // namespace crest
