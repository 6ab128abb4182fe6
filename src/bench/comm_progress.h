// What crest comm shows while it measures: where it is and about how long it still takes. Standard error only.
#pragma once
#include <chrono>
#include <string>

namespace crest {

class CommProgress {
 public:
  explicit CommProgress(size_t cells);
  ~CommProgress() { clear(); }
  CommProgress(const CommProgress&) = delete;
  // The next cell begins. In a terminal one line that changes, elsewhere a line now and then.
  void next(const std::string& what);
  // Removes the line, so that results can be printed.
  void clear();

 private:
  size_t cells_, started_ = 0;
  std::chrono::steady_clock::time_point begin_, printed_{};
  bool live_, shown_ = false;
};

}  // namespace crest
