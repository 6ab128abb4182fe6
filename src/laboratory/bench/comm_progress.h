// The progress of crest comm on standard error: current measurement, estimated time left.
#pragma once
#include <string>

#include "core/timer.h"

namespace crest {

class CommProgress {
 public:
  explicit CommProgress(size_t measurements);
  ~CommProgress() { clear(); }
  CommProgress(const CommProgress&) = delete;
  // Starts the next measurement. A terminal gets one updating line, a file a line now and then.
  void next(const std::string& what);
  // Clears the line before results are printed.
  void clear();

 private:
  size_t measurements_, started_ = 0;
  Timer since_begin_, since_line_;
  bool live_, shown_ = false;
};

}  // namespace crest
