// Notices when --precision fp8 loses more values than it did.
#pragma once
#include <optional>
#include <string>

#include "train/step_row.h"

namespace crest {

class Fp8Watch {
 public:
  static constexpr int window = 100;  // steps in the mean

  // A warning, after a window with more than twice as many saturated or vanished values as the
  // first one, or the last one with a warning. Shares below the least ones are of no concern.
  std::optional<std::string> add(const StepRow& row);

 private:
  struct Part {
    const char* what;
    double min;
    double sum = 0, before = -1;
  };
  Part parts_[2] = {{"are above the largest number of their format", 1e-5}, {"became zero", 1e-2}};
  int steps_ = 0;
};

}  // namespace crest
