// A thread with work that may throw.
#pragma once
#include <exception>
#include <functional>
#include <thread>
#include <utility>

namespace crest {

// A thread with a handler for exceptions, so none reaches std::terminate. The destructor joins,
// also when a constructor or a list of threads fails midway. All threads of Crest start here
// (scripts/check-layers.py).
class Thread {
 public:
  // In the thread, as its last act. Its own exceptions are lost.
  using Failed = std::function<void(const std::exception_ptr&)>;

  Thread() = default;
  Thread(std::function<void()> work, Failed failed)
      : thread_([work = std::move(work), failed = std::move(failed)] {
          try {
            work();
          } catch (...) {
            try {
              failed(std::current_exception());
            } catch (...) {
            }
          }
        }) {}
  ~Thread() { join(); }
  Thread(Thread&& other) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    return *this;
  }

  bool joinable() const { return thread_.joinable(); }
  void join() {
    if (joinable()) thread_.join();
  }
  // It may outlive this object, and must own everything it uses.
  void detach() { thread_.detach(); }

 private:
  std::thread thread_;
};

}  // namespace crest
