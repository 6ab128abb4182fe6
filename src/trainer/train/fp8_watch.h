// Warns when --precision fp8 loses more values than before.
#pragma once
#include <optional>
#include <string>

#include "train/step_row.h"

namespace crest {

class Fp8Watch {
 public:
  static constexpr int window = 100;  // averaged steps

  // Returns a warning after a window with more than twice the saturated or vanished values of the
  // first window, or of the last one with a warning. Ignores shares below the minimum.
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
